// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace verbena::cli {

/// SHA-256 over bytes in order.
class sha256 {
public:
    sha256();
    ~sha256();
    void update(std::span<const std::byte> bytes);
    /// Lower-case hexadecimal; once, last.
    std::string finish();

private:
    struct state;
    std::unique_ptr<state> state_;
};

} // namespace verbena::cli
