/* keyword.h: whether a message speaks of what a table of expected outcomes says it must. */
#ifndef PLEC_TESTS_SUPPORT_KEYWORD_H
#define PLEC_TESTS_SUPPORT_KEYWORD_H

#include <algorithm>
#include <cctype>
#include <sstream>
#include <string>

namespace plec_test {

/* One of the plain words between bars, case ignored: "truncat|short". "-" asks for nothing. */
inline bool has_keyword(std::string message, std::string keywords) {
    if (keywords == "-") return true;
    auto lower = [](unsigned char c) { return static_cast<char>(std::tolower(c)); };
    std::transform(message.begin(), message.end(), message.begin(), lower);
    std::transform(keywords.begin(), keywords.end(), keywords.begin(), lower);
    std::stringstream words(keywords);
    for (std::string word; std::getline(words, word, '|');)
        if (message.find(word) != std::string::npos) return true;
    return false;
}

} // namespace plec_test
#endif
