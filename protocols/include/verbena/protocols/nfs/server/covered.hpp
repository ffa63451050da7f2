// SPDX-License-Identifier: Apache-2.0
// What exports cover of others: the directories where another export begins.
#pragma once

#include <verbena/core/reactor/clock.hpp>
#include <verbena/core/reactor/shard.hpp>
#include <verbena/core/result.hpp>
#include <verbena/core/task/task.hpp>
#include <verbena/protocols/nfs/server/exports.hpp>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>

#pragma GCC visibility push(default)

namespace verbena::nfs {

/// What another export covers is reached by that one's rules alone. Its name does not tell: a file system may ignore
/// case, and a client may have a handle from before. So what was found is compared with the directories that are
/// covered, which this object has looked up by the exports' paths, at most two seconds ago. What somebody local moves
/// within that time is missed.
///
/// Each inner export is looked up apart from the others: a path that hangs hides no other one, and what was known of
/// it before counts. Two at most are asked for at once; while as many hang, what is known of the others counts as
/// well. Of one whose lookup has failed from the start on (but for "no such name") nothing is known, and nothing is
/// covered by it; who has no handle of it from before can't reach it by that path either.
///
/// One for each program of a shard; that shard only.
class covered_directories final : private export_table::listener {
public:
    /// After that time what was found is looked up again ...
    static constexpr duration look_again = std::chrono::seconds(1);
    /// ... and after this one a call waits for that.
    static constexpr duration too_old = std::chrono::seconds(2);
    /// So long a call waits while lookups hang. Then what was known before counts.
    static constexpr duration patience = std::chrono::seconds(1);

    /// `exports`, with their back ends, outlive it and the tasks of `here`, the program's shard. Lookups begin at
    /// once where that is given. On another thread look() begins them; without a shard it has them run in the call,
    /// which then waits for one that hangs.
    explicit covered_directories(const export_table& exports, const shard* here);
    covered_directories(const covered_directories&) = delete;
    ~covered_directories();

    /// Looks up again what is covered of `outer`, where that is due. At once where nothing is.
    /// Completes when: it is known, or `patience` is over. On cancel: it ends. Errors: none. Lifetime: this outlives
    /// it. Shard: the program's.
    task<void> look(const export_options& outer);

    /// The export that covers `file` of `outer`; nullptr if none is known.
    const export_options* at(const export_options& outer, const storage::handle& file) const noexcept;
    /// Whether the first lookups of `outer` run, for `patience` at most: who comes with a handle waits until at() can
    /// tell.
    bool is_settling(const export_options& outer) const noexcept;
    /// The number of the directory that `inner` covers (mounted_on_fileid, RFC 8881 5.8.2.23); 0 if it covers none,
    /// or none is known.
    std::uint64_t number_of(const export_options& inner) const noexcept;
    /// Whether something in this directory of `outer` may be covered, or lead to what is.
    bool is_above(const export_options& outer, const storage::handle& directory) const noexcept;
    /// Whether this directory of `outer` is covered or leads to one that is: moved elsewhere, that one would be
    /// reached by the rules of `outer`.
    bool must_stay(const export_options& outer, const storage::handle& directory) const noexcept;

private:
    struct known;
    struct round;
    /// What stays as it was goes on; what is new is looked up.
    void exports_changed() noexcept override;
    std::shared_ptr<known> known_of(const export_options& outer);
    const known* find(const export_options& outer) const noexcept;
    void begin(const std::shared_ptr<known>& k, const export_options& outer, const clock_source& clock);
    static task<result<bool>> until_over(std::shared_ptr<round> r);
    static task<void> settle(std::shared_ptr<known> k);
    static task<void> look_up_due(std::shared_ptr<known> k, std::shared_ptr<round> r);

    const export_table& exports_;
    scope* const aside_; // where lookups run; nullptr: in the calls that want them
    std::map<std::uint32_t, std::shared_ptr<known>> known_; // by the export's id
};

} // namespace verbena::nfs

#pragma GCC visibility pop
