// SPDX-License-Identifier: Apache-2.0
// Exports that are suspended, and the commands `suspend` and `resume` (docs/internals/control.md).
#pragma once

#include "export_set.hpp"

#include <verbena/core/module/control.hpp>
#include <verbena/protocols/nfs/server/state_home.hpp>
#include <verbena/protocols/storage/suspension.hpp>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

namespace verbena::nfs {

/// Any thread, once start() was called.
class suspensions {
public:
    /// `exports` outlives this. `state` yields the state layer, or nullptr where no version has one; it is asked while calls are served.
    suspensions(const export_set& exports, std::function<state_home*()> state);
    ~suspensions();
    suspensions(const suspensions&) = delete;

    /// How long clients have to give back what they use without calls.
    void start(duration recall_patience) { recall_patience_ = recall_patience; }
    std::vector<control_command> commands();
    struct status {
        storage::suspension::state now;
        std::optional<std::int64_t> since; ///< seconds since 1970, while it is suspended
        std::uint32_t space;               ///< export_options::space
    };
    /// By the paths of exports; those that can't be suspended are not there.
    std::map<std::string, status, std::less<>> all() const;
    /// For a reload: nothing is suspended or resumed as long as this is held, by the thread that took it. Throws config_error while
    /// something is.
    std::unique_lock<std::mutex> hold_still();

private:
    class state_side;
    class member;
    struct entry;
    using entries = std::vector<std::shared_ptr<entry>>;
    entries now() const;
    // Of one command: no reload comes between, and the back end stays open.
    struct turn {
        std::unique_lock<std::mutex> lock;
        std::shared_ptr<entry> of;
        std::shared_ptr<export_backend> keep;
    };
    turn take_turn(const control_arguments& told);
    std::shared_ptr<entry> find(const control_arguments& told);
    std::vector<std::string> others_of(const entry& e) const;
    bool has_served_others(const entry& e) const;
    bool has_suspended_others(const entry& e) const;
    control_answer suspend(const control_arguments& told, std::stop_token stop);
    control_answer resume(const control_arguments& told, std::stop_token stop);

    const export_set& exports_;
    const std::function<state_home*()> state_;
    duration recall_patience_{};
    mutable std::mutex known_mutex_; // of what follows
    mutable entries known_;          // of exports that were served when somebody asked last
    std::mutex mutex_;               // of who suspends or resumes: one at a time
};

/// "2026-11-30T18:00:00Z"
std::string utc_text(std::int64_t seconds_since_1970);

} // namespace verbena::nfs
