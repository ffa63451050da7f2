// SPDX-License-Identifier: Apache-2.0
// Other programs, and what they say.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace verbena::cli {

struct said {
    int failed = 0;     ///< errno: it was not started, or did not end in time (ETIMEDOUT)
    int status = 0;     ///< as it exited; 128 and the signal's number, if one ended it
    std::string output; ///< its standard output, up to 4 MiB
    std::string errors;
    bool is_good() const { return failed == 0 && status == 0; }
};
/// Runs `words` with nothing to read, for `patience` at most; then it is killed. `directory`: where it runs; empty: here.
said run_program(std::vector<std::string> words, std::chrono::milliseconds patience,
                 const std::string& directory = {});

/// The program of this name beside this one, where it is; else the name alone, for PATH.
std::string program_beside(const std::string& name);

} // namespace verbena::cli
