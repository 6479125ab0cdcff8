#include "tests/support/data.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace plec_test {

namespace {
/* A test program that was carried to another machine is told where its surroundings are. */
std::string told_or(const char *variable, const char *otherwise) {
    const char *told = getenv(variable);
    return told != nullptr && *told != '\0' ? told : otherwise;
}
} // namespace

std::string data_path(const std::string &name) {
    return told_or("PLEC_TEST_DATA", PLEC_TEST_DATA) + "/" + name;
}

std::string read_text(const std::string &path) {
    std::ifstream in(path, std::ios::binary);
    EXPECT_TRUE(in.good()) << path;
    std::stringstream text;
    text << in.rdbuf();
    return text.str();
}

std::vector<uint8_t> read_file(const std::string &path) {
    std::string text = read_text(path);
    return std::vector<uint8_t>(text.begin(), text.end());
}

void write_file(const std::string &path, const void *bytes, size_t n_bytes) {
    std::ofstream out(path, std::ios::binary | std::ios::trunc);
    out.write(static_cast<const char *>(bytes), static_cast<std::streamsize>(n_bytes));
    EXPECT_TRUE(out.good()) << path;
}

std::vector<std::string> list_folder(const std::string &path, const std::string &suffix) {
    std::vector<std::string> names;
    for (const auto &entry : std::filesystem::directory_iterator(path)) {
        std::string name = entry.path().filename().string();
        if (name.size() >= suffix.size() &&
            name.compare(name.size() - suffix.size(), suffix.size(), suffix) == 0)
            names.push_back(name.substr(0, name.size() - suffix.size()));
    }
    std::sort(names.begin(), names.end());
    return names;
}

TempDir::TempDir() {
    std::string pattern = (std::filesystem::temp_directory_path() / "plectrum-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) ADD_FAILURE() << "mkdtemp: " << strerror(errno);
    root_ = pattern;
}

TempDir::~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
}

std::string TempDir::path(const std::string &name) const {
    return name.empty() ? root_ : root_ + "/" + name;
}

std::string tool_path() {
    return told_or("PLEC_TOOL", PLEC_TOOL);
}

ToolResult run_tool(const std::vector<std::string> &args) {
    std::vector<std::string> on_cpu = args;
    if (!args.empty() && (args[0] == "run" || args[0] == "bench"))
        on_cpu.insert(on_cpu.begin() + 1, {"--device", "cpu"});
    return run_program(tool_path(), on_cpu);
}

ToolResult run_program(const std::string &program, const std::vector<std::string> &args) {
    TempDir dir;
    std::string out = dir.path("out"), err = dir.path("err"), name = program;
    std::vector<char *> argv;
    argv.push_back(name.data());
    std::vector<std::string> copies = args;
    for (std::string &arg : copies)
        argv.push_back(arg.data());
    argv.push_back(nullptr);
    pid_t child = fork();
    if (child == 0) {
        int fd_in = open("/dev/null", O_RDONLY);
        int fd_out = open(out.c_str(), O_WRONLY | O_CREAT, 0600);
        int fd_err = open(err.c_str(), O_WRONLY | O_CREAT, 0600);
        dup2(fd_in, 0);
        dup2(fd_out, 1);
        dup2(fd_err, 2);
        execv(program.c_str(), argv.data());
        _exit(127);
    }
    int status = 0;
    waitpid(child, &status, 0);
    ToolResult result;
    result.exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    result.out = read_text(out);
    result.err = read_text(err);
    return result;
}

uint64_t fnv1a64(const void *bytes, size_t n_bytes) {
    const auto *p = static_cast<const uint8_t *>(bytes);
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n_bytes; i++)
        hash = (hash ^ p[i]) * 0x100000001b3u;
    return hash;
}

static Npy parse_npy(const std::string &text) {
    Npy npy;
    size_t header = static_cast<uint8_t>(text[8]) | static_cast<uint8_t>(text[9]) << 8;
    std::string dict = text.substr(10, header);
    size_t at = dict.find("'descr': '") + 10;
    npy.descr = dict.substr(at, dict.find('\'', at) - at);
    at = dict.find("'shape': (") + 10;
    std::stringstream shape(dict.substr(at, dict.find(')', at) - at));
    std::string part;
    size_t n = 1;
    while (std::getline(shape, part, ',')) {
        if (part.find_first_of("0123456789") == std::string::npos) continue;
        npy.shape.push_back(std::stoull(part));
        n *= npy.shape.back();
    }
    const char *data = text.data() + 10 + header;
    for (size_t i = 0; i < n; i++) {
        if (npy.descr == "<f4") {
            float value;
            memcpy(&value, data + 4 * i, 4);
            npy.values.push_back(value);
        } else if (npy.descr == "<i4") {
            int32_t value;
            memcpy(&value, data + 4 * i, 4);
            npy.values.push_back(value);
        } else {
            double value;
            memcpy(&value, data + 8 * i, 8);
            npy.values.push_back(value);
        }
    }
    return npy;
}

Npy read_npy(const std::string &path) {
    std::string text = read_text(path);
    EXPECT_GT(text.size(), 10u) << path;
    return text.size() > 10 ? parse_npy(text) : Npy();
}

std::vector<float> Npy::f32() const {
    return std::vector<float>(values.begin(), values.end());
}
std::vector<int32_t> Npy::i32() const {
    return std::vector<int32_t>(values.begin(), values.end());
}

double nmse(const std::vector<float> &a, const std::vector<double> &b) {
    if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
    double error = 0, norm = 0;
    for (size_t i = 0; i < a.size(); i++) {
        double difference = a[i] - b[i];
        error += difference * difference;
        norm += b[i] * b[i];
    }
    double ratio = norm > 0 ? error / norm : error;
    return std::isnan(ratio) ? std::numeric_limits<double>::infinity() : ratio;
}

} // namespace plec_test
