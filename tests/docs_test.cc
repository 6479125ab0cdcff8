/* Pages that name tests: a table of what holds a failure off is worth what it points at. */
#include "tests/support/data.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <regex>
#include <set>

using namespace plec_test;

namespace {

/* "Suite.Name" of every test of the tree. */
std::set<std::string> all_tests() {
    std::set<std::string> names;
    std::regex test(R"(TEST(?:_F|_P)?\((\w+),\s+(\w+)\))");
    for (const auto &file : std::filesystem::directory_iterator(data_path(".."))) {
        if (file.path().extension() != ".cc") continue;
        std::string text = read_text(file.path().string());
        for (std::sregex_iterator i(text.begin(), text.end(), test), end; i != end; ++i)
            names.insert((*i)[1].str() + "." + (*i)[2].str());
    }
    return names;
}

TEST(Docs, NameTestsThatThereAre) {
    std::set<std::string> tests = all_tests();
    ASSERT_GT(tests.size(), 500u);
    std::regex named(R"(`([A-Z]\w+\.[A-Z]\w+)`)");
    size_t n = 0;
    for (const auto &file : std::filesystem::directory_iterator(data_path("../../docs"))) {
        if (file.path().extension() != ".md") continue;
        std::string text = read_text(file.path().string());
        for (std::sregex_iterator i(text.begin(), text.end(), named), end; i != end; ++i, n++)
            EXPECT_EQ(tests.count((*i)[1].str()), 1u) << file.path() << ": " << (*i)[1].str();
    }
    EXPECT_GT(n, 50u);
}

} // namespace
