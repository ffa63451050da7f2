// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/nfs/client/v4/pnfs/layout_user.hpp>

#include "file_layout.hpp"

#include <verbena/core/task/already_made.hpp>
#include <verbena/core/task/combine.hpp>
#include <verbena/core/task/sleep.hpp>

#include <algorithm>
#include <new>
#include <utility>

namespace verbena::nfs::v4::pnfs {
namespace {

constexpr std::size_t layouts_tested_at_once = 100;

layout_options fitting(layout_options o) noexcept
{
    if (o.requires_layouts)
        o.least = 0;
    return o;
}

} // namespace

layout_user::layout_user(client& of, verbs::context& device, buffer_pool& pool, layout_options options)
    : client_(of),
      pool_(pool),
      options_(fitting(std::move(options))),
      connections_(of.session(), device, pool, options_.connections)
{
    client_.use_layouts(this);
}

layout_user::~layout_user() { client_.use_layouts(nullptr); }

std::unique_ptr<layout_file> layout_user::use(std::unique_ptr<file> f)
{
    auto mine = std::make_shared<layout_sharer>(std::move(f));
    file_layout* const known = find(mine->plain->node().handle);
    auto of = known != nullptr ? known->shared_from_this()
                               : std::make_shared<file_layout>(*this, mine->plain->node(), lanes_++);
    of->join(mine);
    return std::unique_ptr<layout_file>(new layout_file(std::move(of), std::move(mine)));
}

std::size_t layout_user::holders() const noexcept
{
    return static_cast<std::size_t>(
        std::ranges::count_if(files_, [](const file_layout* each) { return each->id.has_value(); }));
}

file_layout* layout_user::find(const known_handle& object) const noexcept
{
    const auto found =
        std::ranges::find_if(files_, [&](const file_layout* each) { return each->node.handle == object; });
    return found == files_.end() ? nullptr : *found;
}

std::vector<std::shared_ptr<file_layout>> layout_user::holding() const
{
    std::vector<std::shared_ptr<file_layout>> out;
    for (file_layout* const each : files_) {
        if (each->id)
            out.push_back(each->shared_from_this());
    }
    return out;
}

// What a file system has stays so while it is used.
task<result<layout_user::file_system>> layout_user::look_at(const v4::node& of)
{
    const fsid4 id = of.attributes.fsid;
    const auto known = std::ranges::find_if(file_systems_, [&](const file_system& each) {
        return each.id.major == id.major && each.id.minor == id.minor;
    });
    if (known != file_systems_.end())
        co_return *known;
    GETATTR4args wanted;
    wanted.attr_request = {attribute::fs_layout_types, attribute::layout_blksize};
    operations call(PUTFH4args{of.handle.bytes()}, wanted);
    auto ran = co_await client_.session().run(call);
    if (!ran)
        co_return ran.error();
    attributes told;
    if (!decode_attributes(call.get<1>().obj_attributes, told))
        co_return error(std::errc::bad_message, "attributes that can't be read");
    file_system made;
    made.id = id;
    if (told.present.test(attribute::fs_layout_types)) {
        for (const layouttype4 each : told.fs_layout_types)
            made.has_type = made.has_type || each == layouttype4::rdma;
    }
    if (told.present.test(attribute::layout_blksize))
        made.block = told.layout_blksize;
    if (file_systems_.size() >= max_file_systems)
        file_systems_.erase(file_systems_.begin());
    file_systems_.push_back(made);
    co_return made;
}

// The session's scope is there: a layout was given in it.
void layout_user::run_beside(task<void> made)
{
    client_.session().background().spawn(already_made, std::move(made));
}

nfsstat4 layout_user::recalled(const CB_LAYOUTRECALL4args& args)
{
    if (args.type != layouttype4::rdma)
        return nfsstat4::nomatching_layout;
    const bool of_file = args.recall.recalltype == layoutrecall_type4::file;
    const bool of_system = args.recall.recalltype == layoutrecall_type4::fsid;
    const known_handle object(args.recall.fh);
    nfsstat4 status = nfsstat4::nomatching_layout;
    known_handle any;
    try {
        std::vector<std::shared_ptr<file_layout>> those;
        for (file_layout* const each : files_) {
            const v4::node& node = each->node;
            const fsid4& system = node.attributes.fsid;
            if (of_file ? !(node.handle == object)
                        : of_system && (system.major != args.recall.fsid.major ||
                                        system.minor != args.recall.fsid.minor))
                continue;
            const nfsstat4 one = each->answer_to(args);
            // What this one has not heard of yet would go back with the others'.
            if (one == nfsstat4::delay)
                return one;
            if (one == nfsstat4::ok) {
                status = one;
                any = node.handle;
                those.push_back(each->shared_from_this());
            }
        }
        if (those.empty())
            return status;
        for (const auto& each : those)
            each->note_recall(args);
        run_beside(give_all_back(std::move(those),
                                 of_file     ? layoutrecall_type4::file
                                 : of_system ? layoutrecall_type4::fsid
                                             : layoutrecall_type4::all,
                                 any));
    } catch (const std::bad_alloc&) {
        return nfsstat4::delay;
    }
    return status;
}

task<void> layout_user::close()
{
    co_await connections_.close();
    if (!std::exchange(is_in_doubt_, false))
        co_return;
    LAYOUTRETURN4args args;
    args.layout_type = layouttype4::rdma;
    args.iomode = layoutiomode4::any;
    args.layoutreturn.returntype = layoutreturn_type4::all;
    operations call(PUTROOTFH4args(), args);
    call.once();
    (void)co_await client_.session().run(call);
}

task<void> layout_user::give_some_back(const std::vector<std::shared_ptr<file_layout>>& those,
                                       std::size_t& next)
{
    while (next < those.size()) {
        const std::shared_ptr<file_layout>& one = those[next++];
        co_await one->give_recalled_back();
    }
}

// A recall of more than a file ends with a LAYOUTRETURN of all that it named (8881 12.5.5.1), once none of these files has any.
task<void> layout_user::give_all_back(std::vector<std::shared_ptr<file_layout>> those,
                                      layoutrecall_type4 type, known_handle of)
{
    const std::uint64_t incarnation = client_.session().incarnation();
    // One that takes long keeps no other from going back: the server waits for each.
    std::size_t next = 0;
    std::vector<task<void>> side_by_side;
    for (std::size_t i = 0; i < std::min(those.size(), given_back_at_once); ++i)
        side_by_side.push_back(give_some_back(those, next));
    auto all_given = when_all(std::move(side_by_side));
    (void)co_await all_given;
    const auto has = [](const auto& each) { return each->id || each->is_asking; };
    if (type == layoutrecall_type4::file || std::ranges::any_of(those, has))
        co_return;
    LAYOUTRETURN4args args;
    args.layout_type = layouttype4::rdma;
    args.iomode = layoutiomode4::any;
    result<void> ran;
    if (type == layoutrecall_type4::fsid) {
        args.layoutreturn.returntype = layoutreturn_type4::fsid;
        operations call(PUTFH4args{of.bytes()}, args);
        call.once().only_in(incarnation);
        ran = co_await client_.session().run(call);
    } else {
        args.layoutreturn.returntype = layoutreturn_type4::all;
        operations call(PUTROOTFH4args(), args);
        call.once().only_in(incarnation);
        ran = co_await client_.session().run(call);
    }
    is_in_doubt_ = is_in_doubt_ || !ran;
}

void layout_user::keep_at_most(std::size_t most)
{
    auto all = holding();
    if (all.size() <= most)
        return;
    std::ranges::sort(all, {}, [](const auto& each) { return each->used; });
    all.resize(all.size() - most);
    for (const auto& each : all) {
        if (each->recalls.empty())
            each->recalls.emplace_back();
    }
    run_beside(give_all_back(std::move(all), layoutrecall_type4::file, known_handle()));
}

void layout_user::cannot_be_called() { keep_at_most(0); }

// The server does not recall a layout for its holder's own changes (docs/internals/pnfs.md, "A hole that is filled").
void layout_user::changed(const known_handle& object) noexcept
{
    for (file_layout* const each : files_) {
        if ((each->id || each->is_asking) && each->node.handle == object) {
            ++each->changes;
            each->map.forget_holes();
        }
    }
}

task<void> layout_user::free_what_is_revoked()
{
    const auto all = holding();
    std::vector<stateid4> ids;
    for (const auto& each : all)
        ids.push_back(*each->id);
    for (std::size_t done = 0; done < ids.size();) {
        const std::size_t count = std::min(ids.size() - done, layouts_tested_at_once);
        TEST_STATEID4args args;
        args.stateids = std::span<const stateid4>(ids).subspan(done, count);
        operations call(args);
        auto ran = co_await client_.session().run(call);
        if (!ran)
            co_return;
        std::size_t at = done;
        for (const nfsstat4 status : call.get<0>().status_codes) {
            if (at >= done + count)
                break;
            file_layout& f = *all[at];
            if (f.id && f.id->other == ids[at].other && status != nfsstat4::ok &&
                status != nfsstat4::old_stateid) {
                f.is_revoked = true;
                f.lose(by_nfs::lost);
            }
            ++at;
        }
        done += count;
    }
}

} // namespace verbena::nfs::v4::pnfs
