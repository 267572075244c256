# Reports at once, with a remedy, what a GPU build lacks; llama.cpp's own checks come later and name internal targets.

if(GGML_CUDA)
    include(CheckLanguage)
    check_language(CUDA)
    if(NOT CMAKE_CUDA_COMPILER)
        message(FATAL_ERROR "GGML_CUDA=ON needs the CUDA toolkit, and nvcc was not found. Install the toolkit, or name "
            "its compiler: CUDACXX=/usr/local/cuda/bin/nvcc, or -DCMAKE_CUDA_COMPILER=….")
    endif()
    find_package(CUDAToolkit QUIET)
    if(NOT CUDAToolkit_FOUND)
        message(FATAL_ERROR "GGML_CUDA=ON: ${CMAKE_CUDA_COMPILER} was found, but not the rest of its CUDA toolkit. "
            "Install the whole toolkit, or name its folder: -DCUDAToolkit_ROOT=….")
    endif()
    if(NOT TARGET CUDA::cublas)
        message(FATAL_ERROR "GGML_CUDA=ON: this CUDA toolkit (${CUDAToolkit_VERSION}) has no cuBLAS. Install it "
            "(libcublas-dev), or use the one in the wheel nvidia-cublas of the same major version: "
            "-DCUDA_cublas_LIBRARY=…/libcublas.so.N -DCMAKE_CUDA_FLAGS=-I…/include.")
    endif()
endif()

if(GGML_VULKAN)
    find_package(Vulkan QUIET COMPONENTS glslc)
    if(NOT Vulkan_FOUND OR NOT Vulkan_glslc_FOUND)
        message(FATAL_ERROR "GGML_VULKAN=ON needs the Vulkan headers, the Vulkan loader and the shader compiler glslc. "
            "On Debian or Ubuntu: apt install libvulkan-dev glslc; elsewhere the Vulkan SDK.")
    endif()
endif()

if(GGML_METAL AND NOT APPLE)
    message(FATAL_ERROR "GGML_METAL=ON is for macOS; this is ${CMAKE_SYSTEM_NAME}. Use GGML_CUDA or GGML_VULKAN here.")
endif()
