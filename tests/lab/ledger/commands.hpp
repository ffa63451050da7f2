// SPDX-License-Identifier: Apache-2.0
// Commands by the standard input, answers by the standard output.
#pragma once

#include <verbena/core/task/sleep.hpp>
#include <verbena/core/task/task.hpp>

#include <array>
#include <chrono>
#include <cstdio>
#include <poll.h>
#include <string>
#include <unistd.h>

namespace verbena::ledger {

/// Lines of the standard input, asked for now and then: commands are rare.
class commands {
public:
    task<std::string> next()
    {
        for (;;) {
            const std::size_t end = text_.find('\n');
            if (end != std::string::npos) {
                std::string line = text_.substr(0, end);
                text_.erase(0, end + 1);
                co_return line;
            }
            pollfd in{STDIN_FILENO, POLLIN, 0};
            if (::poll(&in, 1, 0) == 0) {
                co_await sleep_for(std::chrono::milliseconds(5));
                continue;
            }
            std::array<char, 4096> block;
            const ssize_t n = ::read(STDIN_FILENO, block.data(), block.size());
            if (n <= 0)
                co_return "end";
            text_.append(block.data(), static_cast<std::size_t>(n));
        }
    }

private:
    std::string text_;
};

inline void answer(const std::string& text)
{
    std::printf("%s\n", text.c_str());
    std::fflush(stdout);
}

} // namespace verbena::ledger
