// SPDX-License-Identifier: Apache-2.0
#include "snapshots.hpp"

#include <verbena/core/task/sleep.hpp>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <memory>

namespace verbena::nfs {

namespace {

// Who makes a snapshot asks again after that.
constexpr duration patience_with_layouts = std::chrono::seconds(1);
// What is back is fenced behind the answer.
constexpr duration look_for_layouts = std::chrono::milliseconds(1);
constexpr duration most_wait_for_layouts = std::chrono::milliseconds(32);

// Of the directory of snapshots, where there is state.
storage::snapshot_keeper* keeper_of(const directory_to_change& in) noexcept
{
    storage::snapshot_keeper* const keeper = in.state == nullptr ? nullptr : in.files.snapshots();
    return keeper != nullptr && keeper->takes_in(in.directory) ? keeper : nullptr;
}

task<result<storage::create_result>> take_snapshot(directory_to_change in, storage::snapshot_keeper* keeper,
                                                   std::string_view name, const storage::set_attributes& set)
{
    const task_context& context = co_await current_context();
    const auto& clock = context.shard->clock();
    const time_point until = clock.now() + patience_with_layouts;
    const std::function<bool(const storage::handle&)> all = [](const storage::handle&) { return true; };
    // From here on no new ones are given, so that it comes to an end.
    const std::shared_ptr<const void> none_else = keeper->hold_back_mappings();
    for (duration pause = look_for_layouts;; pause = std::min<duration>(2 * pause, most_wait_for_layouts)) {
        task<result<storage::create_result>> making = in.files.mkdir(in.request, in.directory, name, set);
        result<storage::create_result> made = co_await making;
        if (made || made.error().errno_value() != EAGAIN || clock.now() >= until)
            co_return std::move(made);
        task<result<void>> asking =
            in.state->make_way_in(in.space, files::operation::set_attributes, all, until);
        const result<void> way = co_await asking;
        bool goes_on = bool(way);
        if (goes_on)
            goes_on = co_await sleep_for(pause);
        if (!goes_on)
            co_return error::from_errno(EAGAIN, "a snapshot: layouts are not back yet");
    }
}

task<result<storage::change>> end_snapshot(directory_to_change in, storage::snapshot_keeper* keeper,
                                           std::string_view name)
{
    task<result<void>> asking = in.files.may_remove(in.request, in.directory, name);
    const result<void> may = co_await asking;
    if (!may)
        co_return may.error();
    const task_context& context = co_await current_context();
    const time_point until = context.shard->clock().now() + patience_with_layouts;
    // Or one were given to who asks between the last that came back and the end.
    const std::shared_ptr<const void> none_else = keeper->hold_back_mappings_of(name);
    const std::function<bool(const storage::handle&)> of_it = [keeper, name](const storage::handle& f) {
        return keeper->has(name, f);
    };
    task<result<void>> making = in.state->make_way_in(in.space, files::operation::remove, of_it, until);
    const result<void> way = co_await making;
    if (!way)
        co_return error::from_errno(EAGAIN, "the end of a snapshot: layouts are not back yet");
    task<result<storage::change>> removing = in.files.rmdir(in.request, in.directory, name);
    const result<storage::change> done = co_await removing;
    co_return done;
}

} // namespace

task<result<storage::create_result>> make_directory(directory_to_change in, std::string_view name,
                                                    const storage::set_attributes& set)
{
    storage::snapshot_keeper* const keeper = keeper_of(in);
    return keeper != nullptr ? take_snapshot(in, keeper, name, set)
                             : in.files.mkdir(in.request, in.directory, name, set);
}

task<result<storage::change>> remove_directory(directory_to_change in, std::string_view name)
{
    storage::snapshot_keeper* const keeper = keeper_of(in);
    return keeper != nullptr ? end_snapshot(in, keeper, name)
                             : in.files.rmdir(in.request, in.directory, name);
}

} // namespace verbena::nfs
