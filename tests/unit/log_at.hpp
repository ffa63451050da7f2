// SPDX-License-Identifier: Apache-2.0
// The level of the log, which is the whole program's: a case that sets it has to put it back for those behind it,
// which may read lines.
#pragma once

#include <verbena/core/log.hpp>

namespace verbena::test {

/// Sets it as long as this lives.
class log_at {
public:
    explicit log_at(log_level level) noexcept : before_(current_log_level()) { set_log_level(level); }
    log_at(const log_at&) = delete;
    ~log_at() { set_log_level(before_); }

private:
    const log_level before_;
};

} // namespace verbena::test
