// SPDX-License-Identifier: Apache-2.0
// What exports cover of others: the directories where another export begins.
#pragma once

#include <verbena/core/clock.hpp>
#include <verbena/core/result.hpp>
#include <verbena/core/shard.hpp>
#include <verbena/core/task.hpp>
#include <verbena/protocols/nfs/server/exports.hpp>

#include <chrono>
#include <map>
#include <memory>

#pragma GCC visibility push(default)

namespace verbena::nfs {

/// What another export covers is reached by that one's rules alone. Its name does not tell: a file system may ignore
/// case, and a client may have a handle from before. So what was found is compared with the directories that are
/// covered, which this object has looked up by the exports' paths, at most a second ago. What somebody local moves
/// within that second is missed.
///
/// One for each program of a shard; that shard only.
class covered_directories {
public:
    /// After that time what was found is looked up again.
    static constexpr duration look_again = std::chrono::seconds(1);
    /// So long a call waits while a lookup hangs. Then what was known before counts.
    static constexpr duration patience = std::chrono::seconds(1);

    /// `exports`, with their back ends, outlive it and the tasks of `here`, the program's shard. Lookups begin at
    /// once where that is given. Without it, and on another thread, look() begins them.
    explicit covered_directories(const export_table& exports, const shard* here);
    covered_directories(const covered_directories&) = delete;
    ~covered_directories();

    /// Looks up again what is covered of `outer`, where that is due. At once where nothing is.
    /// Completes when: it is known, or `patience` is over. On cancel: it ends. Errors: none. Lifetime: this outlives
    /// it. Shard: `here`.
    task<void> look(const export_options& outer);

    /// The export that covers `file` of `outer`; nullptr if none is known.
    const export_options* at(const export_options& outer, const storage::handle& file) const noexcept;
    /// Whether something in this directory of `outer` may be covered, or lead to what is.
    bool is_above(const export_options& outer, const storage::handle& directory) const noexcept;
    /// Whether this directory of `outer` is covered or leads to one that is: moved elsewhere, that one would be
    /// reached by the rules of `outer`.
    bool must_stay(const export_options& outer, const storage::handle& directory) const noexcept;

private:
    struct known;
    std::shared_ptr<known> known_of(const export_options& outer);
    const known* find(const export_options& outer) const noexcept;
    task<void> begin(std::shared_ptr<known> k);
    static task<void> find_all(const export_table& exports, std::shared_ptr<known> k);

    const export_table& exports_;
    scope* const aside_; // where lookups run; nullptr: in the calls that want them
    std::map<const export_options*, std::shared_ptr<known>> known_;
};

} // namespace verbena::nfs

#pragma GCC visibility pop
