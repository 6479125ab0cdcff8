/* Runs a fuzz target over the files of a folder: the seeds and every input that once failed, as a
 * test of builds without libFuzzer. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay_file(const char *path) {
    FILE *file = fopen(path, "rb");
    if (file == NULL) return 1;
    fseek(file, 0, SEEK_END);
    long size = ftell(file);
    rewind(file);
    uint8_t *data = malloc(size > 0 ? (size_t)size : 1);
    int failed = data == NULL || size < 0 || fread(data, 1, (size_t)size, file) != (size_t)size;
    if (!failed) LLVMFuzzerTestOneInput(data, (size_t)size);
    free(data);
    fclose(file);
    return failed;
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    DIR *folder = opendir(argv[1]);
    if (folder == NULL) {
        perror(argv[1]);
        return 1;
    }
    unsigned n_files = 0;
    int failed = 0;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        if (entry->d_name[0] == '.') continue;
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", argv[1], entry->d_name);
        failed |= replay_file(path);
        n_files++;
    }
    closedir(folder);
    printf("replayed %u inputs\n", n_files);
    return failed || n_files == 0;
}
