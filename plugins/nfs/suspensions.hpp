// SPDX-License-Identifier: Apache-2.0
// Exports that are suspended, and the commands `suspend` and `resume` (docs/internals/control.md).
#pragma once

#include <verbena/core/module/control.hpp>
#include <verbena/protocols/nfs/server/exports.hpp>
#include <verbena/protocols/nfs/server/state_home.hpp>
#include <verbena/protocols/storage/suspension.hpp>

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

namespace verbena::nfs {

/// Any thread, once all exports were added.
class suspensions {
public:
    /// `state` yields the state layer, or nullptr where no version has one; it is asked while calls are served.
    explicit suspensions(std::function<state_home*()> state);
    ~suspensions();
    suspensions(const suspensions&) = delete;

    /// An export of the table. `of`: nullptr if its back end can't let go. It outlives this.
    /// `recall_patience`: how long clients have to give back what they use without calls.
    void add(const export_options& exported, storage::suspendable* of, duration recall_patience);
    std::vector<control_command> commands();
    /// nullptr if the export can't be suspended.
    const storage::suspension* of(std::string_view pseudo) const noexcept;

private:
    class state_side;
    class member;
    struct entry;
    entry& find(const control_arguments& told);
    std::vector<std::string> others_of(const entry& e) const;
    bool has_served_others(const entry& e) const noexcept;
    bool has_suspended_others(const entry& e) const noexcept;
    control_answer suspend(const control_arguments& told, std::stop_token stop);
    control_answer resume(const control_arguments& told, std::stop_token stop);

    const std::function<state_home*()> state_;
    std::vector<std::unique_ptr<entry>> entries_;
    std::mutex mutex_; // of who suspends or resumes: one at a time
};

/// "2026-11-30T18:00:00Z"
std::string utc_text(std::int64_t seconds_since_1970);

} // namespace verbena::nfs
