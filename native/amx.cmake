# Sets AMX_VERDICT, and keeps the compiler from using AMX if the processor announces it but faults on it.

if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|i686)$")
    set(AMX_VERDICT "not an x86 processor")
elseif(VIA_SD_PORTABLE)
    set(AMX_VERDICT "left out of a portable build")
elseif(CMAKE_CROSSCOMPILING OR MSVC OR (DEFINED GGML_NATIVE AND NOT GGML_NATIVE))
    set(AMX_VERDICT "not probed: not a native build")
else()
    if(NOT DEFINED VIA_SD_AMX_EXIT)
        try_run(VIA_SD_AMX_EXIT VIA_SD_AMX_COMPILED
            "${CMAKE_CURRENT_BINARY_DIR}/amx_probe" "${CMAKE_CURRENT_LIST_DIR}/amx_probe.c"
            COMPILE_DEFINITIONS -march=native)
        set(VIA_SD_AMX_COMPILED "${VIA_SD_AMX_COMPILED}" CACHE INTERNAL "")
    endif()
    if(NOT VIA_SD_AMX_COMPILED)
        set(AMX_VERDICT "not probed: the probe does not compile")
    elseif(VIA_SD_AMX_EXIT STREQUAL "0")
        set(AMX_VERDICT "works; used")
    elseif(VIA_SD_AMX_EXIT STREQUAL "1")
        set(AMX_VERDICT "not announced")
    else()
        if(VIA_SD_AMX_EXIT STREQUAL "2")
            set(AMX_VERDICT "announced, but the kernel refuses it; built without it")
        else()
            set(AMX_VERDICT "announced, but it faults; built without it")
        endif()
        add_compile_options(
            $<$<COMPILE_LANGUAGE:C,CXX>:-mno-amx-tile>
            $<$<COMPILE_LANGUAGE:C,CXX>:-mno-amx-int8>
            $<$<COMPILE_LANGUAGE:C,CXX>:-mno-amx-bf16>)
    endif()
endif()
message(STATUS "AMX: ${AMX_VERDICT}")
