/* child.h: runs part of a test in a process of its own, which may give up rights or be limited. */
#ifndef PLEC_TESTS_SUPPORT_CHILD_H
#define PLEC_TESTS_SUPPORT_CHILD_H

#include <gtest/gtest.h>

#include <cstdio>
#include <functional>
#include <string>

#include <sys/wait.h>
#include <unistd.h>

namespace plec_test {

/* What `body` returns in a child process; fails the test when the child does not leave with 0. */
inline std::string run_in_child(const std::function<std::string()> &body) {
    int ends[2];
    if (pipe(ends) != 0) return "no pipe";
    fflush(nullptr);
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        std::string said = body();
        for (size_t at = 0; at < said.size();) {
            ssize_t n = write(ends[1], said.data() + at, said.size() - at);
            if (n <= 0) _exit(99);
            at += static_cast<size_t>(n);
        }
        _exit(0);
    }
    close(ends[1]);
    std::string out;
    char buffer[4096];
    for (ssize_t n; (n = read(ends[0], buffer, sizeof buffer)) > 0;)
        out.append(buffer, static_cast<size_t>(n));
    close(ends[0]);
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
    return out;
}

} // namespace plec_test
#endif
