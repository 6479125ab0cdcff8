/* data.h: what several tests need: paths of the test data, whole files, parsed dump lines, running
 * the command-line tool. */
#ifndef PLEC_TESTS_SUPPORT_DATA_H
#define PLEC_TESTS_SUPPORT_DATA_H

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace plec_test {

/* tests/data/<name>. */
std::string data_path(const std::string &name);
/* The bytes of a file; fails the test when it cannot be read. */
std::vector<uint8_t> read_file(const std::string &path);
std::string read_text(const std::string &path);
void write_file(const std::string &path, const void *bytes, size_t n_bytes);
/* Names in a folder that end in `suffix`, sorted, without the suffix. */
std::vector<std::string> list_folder(const std::string &path, const std::string &suffix);
/* A fresh folder that is removed when the object goes. */
class TempDir {
  public:
    TempDir();
    ~TempDir();
    std::string path(const std::string &name = "") const;

  private:
    std::string root_;
};

/* What a run of `plectrum` did. */
struct ToolResult {
    int exit_status;
    std::string out, err;
};
/* The program itself, for tests that start it on their own. */
std::string tool_path();
/* Runs the tool with arguments (no shell); run and bench on the CPU device, whatever the machine
 * has, unless they name another. */
ToolResult run_tool(const std::vector<std::string> &args);
ToolResult run_program(const std::string &program, const std::vector<std::string> &args);

uint64_t fnv1a64(const void *bytes, size_t n_bytes);

/* A C-order .npy array; values converted to double. */
struct Npy {
    std::string descr; /* "<f4", "<i4" */
    std::vector<size_t> shape;
    std::vector<double> values;
    std::vector<float> f32() const;
    std::vector<int32_t> i32() const;
};
Npy read_npy(const std::string &path);

/* sum (a-b)^2 / sum b^2, NaN-proof: any NaN gives infinity. */
double nmse(const std::vector<float> &a, const std::vector<double> &b);

} // namespace plec_test
#endif
