// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbena/core/result.hpp>

#include <string>

namespace verbena::cli {

/// An error with the sentence that the user reads: what failed, why, and what helps.
class failure {
public:
    failure() = default;
    failure(std::string what, const error& why, std::string cure = {});
    /// What failed and why.
    const std::string& what() const noexcept { return what_; }
    const std::string& cure() const noexcept { return cure_; }
    /// All of it, as lines.
    std::string text() const { return cure_.empty() ? what_ : what_ + "\n  " + cure_; }
    bool failed() const noexcept { return !what_.empty(); }

private:
    std::string what_;
    std::string cure_;
};

} // namespace verbena::cli
