// SPDX-License-Identifier: Apache-2.0
// The terminal of `verbena top`, by ncurses.
#pragma once

#include "lay_out.hpp"

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace verbena::cli {

/// The whole terminal, from its constructor until its end, which gives it back as it was. One at a time.
class terminal {
public:
    /// Nothing, and why: there is none, or this build has no ncurses.
    static std::unique_ptr<terminal> open(std::string& failed);
    virtual ~terminal() = default;
    virtual std::size_t width() const = 0;
    virtual std::size_t height() const = 0;
    virtual void show(const std::vector<top_line>& lines) = 0;
    /// Waits for a key for `limit` at most. Nothing: none came, or one that means nothing; or the terminal has another size.
    /// A terminal that is gone is as one that is asked to quit.
    virtual std::optional<top_screen::key> key(std::chrono::milliseconds limit) = 0;
};

} // namespace verbena::cli
