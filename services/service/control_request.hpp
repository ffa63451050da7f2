// SPDX-License-Identifier: Apache-2.0
// Requests and answers of the control plane as lines of JSON. docs/internals/control.md.
#pragma once

#include <verbena/core/module/control.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace verbena::services {

inline constexpr std::int64_t control_version = 1;
inline constexpr std::size_t max_control_line = 16384; ///< of a request, without its line feed
inline constexpr int max_control_depth = 4;            ///< of a request's JSON
inline constexpr std::size_t rows_of_a_part = 100;

/// Why a request is not served.
struct control_refusal {
    const char*
        code; ///< for programs: "bad_request", "unknown_version", "unknown_command", "bad_argument", ...
    std::string message;
};

/// A request of a command that there is.
struct control_request {
    const control_command* command = nullptr;
    control_arguments arguments;
};

/// As an operator would write it: "evict 10.0.0.7 60".
std::string told_of(const control_request& r);

/// All commands of a service. Throws config_error for a name that breaks a rule or stands there already.
class control_table {
public:
    void add(control_command c);
    const control_command* find(std::string_view name) const noexcept;
    std::vector<std::string_view> names() const;
    const std::vector<control_command>& all() const noexcept { return all_; }

private:
    std::vector<control_command> all_;
};

/// Reads one line. The request refers to `table`.
std::variant<control_request, control_refusal> read_control_request(std::string_view line,
                                                                    const control_table& table);

// Lines of an answer, each with its line feed.

/// The first one.
std::string control_head(const control_command& c);
/// Between them: the answer is being worked on, for that long.
std::string control_patience(std::chrono::seconds since);
/// At most rows_of_a_part of them.
std::string control_rows(const control_command& c, std::span<const control_row> rows);
/// The last one: which shards did not answer in time, and what others failed with.
struct control_end {
    std::vector<unsigned> silent;
    struct failed {
        unsigned shard;
        std::string why;
    };
    std::vector<failed> failures;
};
std::string control_tail(const control_end& end);
/// In place of all of them, or of those that are missing.
std::string control_error(const control_refusal& why);

} // namespace verbena::services
