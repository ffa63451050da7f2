// SPDX-License-Identifier: Apache-2.0
// Other programs, and what they say.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

namespace verbena::cli {

/// How a program is run.
struct run_options {
    std::chrono::milliseconds patience; ///< then it is killed
    std::string directory = {};         ///< where it runs; empty: here
    /// Bytes of each of its outputs. A program that says more is killed.
    std::size_t most = std::size_t(4) << 20;
    bool errors_with_output = false; ///< as it wrote them, in `output`
};
struct said {
    int failed = 0;      ///< errno: it was not started, or did not end in time (ETIMEDOUT)
    int status = 0;      ///< as it exited; 128 and the signal's number, if one ended it
    bool is_cut = false; ///< it said more than may be, and was killed for that
    std::string output;  ///< its standard output
    std::string errors;
    bool is_good() const { return failed == 0 && status == 0 && !is_cut; }
};
/// Runs `words` with nothing to read. What it had said is there also where it did not end.
said run_program(std::vector<std::string> words, const run_options& how);

/// The program of this name beside this one, where it is; else the name alone, for PATH.
std::string program_beside(const std::string& name);

} // namespace verbena::cli
