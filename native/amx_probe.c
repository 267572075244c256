// Does AMX work on this machine? Some virtual machines announce it and fault on its first instruction.
//
// Compiled and run by CMake with the flags of a native build. Exit status: 0 it works, 1 the compiler does not use it
// here, 2 the kernel refuses it; death by a signal: announced, but it faults.

#include <stdint.h>
#include <stdio.h>

#if defined(__AMX_TILE__) && defined(__linux__)

#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ARCH_REQ_XCOMP_PERM 0x1023
#define XFEATURE_XTILEDATA  18

int main(void) {
    if (syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) != 0) {
        printf("refused by the kernel");
        return 2;
    }
    // palette 1, one tile of 1 row and 4 bytes
    uint8_t config[64] = { 1 };
    config[16] = 4;
    config[48] = 1;
    _tile_loadconfig(config);
    _tile_zero(0);
    _tile_release();
    printf("works");
    return 0;
}

#else

int main(void) {
    printf("not announced");
    return 1;
}

#endif
