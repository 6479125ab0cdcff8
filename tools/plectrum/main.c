#include <stdio.h>

int main(void) {
    printf("plectrum %s\n", PLEC_VERSION);
    return 0;
}
