/* Pages that name tests: a table of what holds a failure off is worth what it points at. */
#include "tests/support/data.h"

#include <gtest/gtest.h>

#include <cctype>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

using namespace plec_test;

namespace {

/* The word at the start of a text. */
std::string word(const std::string &text, size_t at) {
    size_t end = at;
    while (end < text.size() &&
           (isalnum(static_cast<unsigned char>(text[end])) || text[end] == '_'))
        end++;
    return text.substr(at, end - at);
}

/* "Suite.Name" of every test in a source: TEST(Suite, Name), TEST_F and TEST_P likewise. */
void add_tests(std::set<std::string> *names, const std::string &text) {
    for (size_t at = text.find("\nTEST"); at != std::string::npos;
         at = text.find("\nTEST", at + 1)) {
        size_t suite = text.find('(', at) + 1, comma = text.find(',', suite);
        if (suite == 0 || comma == std::string::npos) return;
        size_t name = text.find_first_not_of(" \n", comma + 1);
        names->insert(word(text, suite) + "." + word(text, name));
    }
}

std::set<std::string> all_tests() {
    std::set<std::string> names;
    for (const auto &file : std::filesystem::directory_iterator(data_path("..")))
        if (file.path().extension() == ".cc") add_tests(&names, read_text(file.path().string()));
    return names;
}

/* What stands between backticks and looks like a test's name. */
std::vector<std::string> named_tests(const std::string &text) {
    std::vector<std::string> names;
    for (size_t at = text.find('`'); at != std::string::npos; at = text.find('`', at + 1)) {
        std::string suite = word(text, at + 1);
        size_t dot = at + 1 + suite.size();
        if (suite.empty() || !isupper(static_cast<unsigned char>(suite[0])) || text[dot] != '.')
            continue;
        std::string name = word(text, dot + 1);
        bool whole = !name.empty() && text[dot + 1 + name.size()] == '`';
        if (whole && isupper(static_cast<unsigned char>(name[0])))
            names.push_back(suite + "." + name);
    }
    return names;
}

TEST(Docs, NameTestsThatThereAre) {
    std::set<std::string> tests = all_tests();
    ASSERT_GT(tests.size(), 500u);
    size_t n = 0;
    for (const auto &file : std::filesystem::directory_iterator(data_path("../../docs"))) {
        if (file.path().extension() != ".md") continue;
        for (const std::string &name : named_tests(read_text(file.path().string()))) {
            EXPECT_EQ(tests.count(name), 1u) << file.path() << ": " << name;
            n++;
        }
    }
    EXPECT_GT(n, 50u);
}

} // namespace
