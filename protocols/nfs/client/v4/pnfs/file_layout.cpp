// SPDX-License-Identifier: Apache-2.0
// How a client gets the layouts of a file, and loses them.
#include "file_layout.hpp"
#include "layout_answers.hpp"

#include <verbena/core/reactor/reactor.hpp>
#include <verbena/core/task/sleep.hpp>

#include <algorithm>
#include <array>

namespace verbena::nfs::v4::pnfs {
namespace {

constexpr std::uint32_t body_of_layouts = 256 * 48 + 64; // bytes: as many extents as our servers give

// It will be the same for as long as the file is open.
bool is_for_good(const error& e) noexcept
{
    return answers_with(e, nfsstat4::layoutunavailable) || answers_with(e, nfsstat4::unknown_layouttype) ||
           answers_with(e, nfsstat4::notsupp) || answers_with(e, nfsstat4::op_illegal);
}

} // namespace

file_layout::file_layout(layout_user& u, const v4::node& f, std::size_t n)
    : user(u), of(u.client_), node(f), lane(n), size(f.attributes.size), there(size)
{
    opened.set();
    quiet.set();
    user.files_.push_back(this);
}

file_layout::~file_layout() { std::erase(user.files_, this); }

bool file_layout::is_of_this_server() const noexcept { return incarnation == of.session().incarnation(); }

// A recall that was heard of since the call was sent may have named a newer one.
void file_layout::take_number(const stateid4& newest) noexcept
{
    if (!id || id->other != newest.other || compare_seqids(newest.seqid, id->seqid) > 0)
        id = newest;
}

void file_layout::forget_layout() noexcept
{
    map.clear();
    id.reset();
    unplaced.clear();
    failure.reset();
    reserve.reset();
}

void file_layout::lose(by_nfs why) noexcept
{
    if (!std::exchange(is_lost, true))
        ++user.counts_.lost;
    last = why;
}

task<result<void>> file_layout::look_at_size()
{
    auto now = co_await of.getattr(node.handle);
    if (!now)
        co_return now.error();
    there = std::max(there, now->size);
    size = std::max(size, now->size);
    co_return result<void>();
}

task<file_layout::chance> file_layout::have(const std::shared_ptr<layout_sharer>& by, layoutiomode4 mode,
                                            std::uint64_t offset, std::uint64_t length, unsigned& asked)
{
    chance out;
    const bool writes = mode != layoutiomode4::read;
    used = ++user.uses_;
    if (id && !is_of_this_server())
        lose(by_nfs::lost);
    if (is_lost || shut) {
        out.again = true;
        co_return out;
    }
    if (writes ? map.to_write(offset).has_value() : map.to_read(offset).has_value()) {
        if (!has_lease())
            out.why = by_nfs::no_lease;
        co_return out;
    }
    out = co_await ask(by, mode, offset, length, asked);
    co_return out;
}

by_nfs file_layout::why_not_ask(const layout_sharer& by, layoutiomode4 mode, std::uint64_t end) const noexcept
{
    if (never != by_nfs::none)
        return never;
    if (!of.session().may_get_layouts())
        return by_nfs::no_server;
    if (!of.session().can_be_called())
        return by_nfs::no_way_back;
    const std::uint64_t all = mode == layoutiomode4::read ? size : std::max({size, by.expected, end});
    if (all < user.options_.least)
        return by_nfs::small;
    return by_nfs::none;
}

task<file_layout::chance> file_layout::ask(const std::shared_ptr<layout_sharer>& by, layoutiomode4 mode,
                                           std::uint64_t offset, std::uint64_t length, unsigned& asked)
{
    chance out;
    out.why = why_not_ask(*by, mode, offset + length);
    if (out.why != by_nfs::none)
        co_return out;
    const task_context& context = co_await current_context();
    reactor& shard = *context.shard;
    if (shard.clock().now() < rests_until) {
        out.why = rests_for;
        co_return out;
    }
    // A layout would be of no use, and cost two calls.
    if (user.connections_.all_rest()) {
        out.why = by_nfs::no_connection;
        co_return out;
    }
    const auto system = co_await user.look_at(node);
    if (!system) {
        out.why = by_nfs::refused;
        co_return out;
    }
    if (!system->has_type) {
        out.why = never = by_nfs::no_type;
        co_return out;
    }
    if (!reserve) {
        lease memory = co_await of.transport().acquire(client_session::message_size);
        if (!memory) {
            out.why = by_nfs::memory;
            co_return out;
        }
        if (!reserve)
            reserve = std::move(memory);
    }
    const bool mine = co_await turn.acquire();
    if (!mine) {
        out.why = by_nfs::later; // whoever waits hears that it is stopped
        co_return out;
    }
    answer got;
    {
        const held_permit held(turn);
        const bool writes = mode != layoutiomode4::read;
        const bool has = writes ? map.to_write(offset).has_value() : map.to_read(offset).has_value();
        // Somebody else has asked, or the layout has gone, and its reserve with it.
        if (is_lost || has || !reserve) {
            out.again = true;
            co_return out;
        }
        // Or somebody else was refused one.
        out.why = why_not_ask(*by, mode, offset + length);
        if (out.why == by_nfs::none && shard.clock().now() < rests_until)
            out.why = rests_for;
        if (out.why != by_nfs::none)
            co_return out;
        if (map.size() + max_rdma_extents > layout_map::max_extents) {
            got.is_late = true;
        } else {
            const std::uint64_t most = writes ? user.options_.write_ahead : user.options_.read_ahead;
            std::uint64_t ahead = writes && by->expected > offset ? by->expected - offset : length;
            if (!writes)
                ahead = size > offset ? size - offset : length;
            got = co_await get(by, mode, offset, std::min(std::max(ahead, length), std::max(most, length)),
                               system->block);
        }
    }
    out.why = got.why;
    out.again = got.again;
    if (got.is_late)
        out = co_await ask_later(asked);
    // Who is stopped says nothing of the server.
    const bool is_refused =
        out.why == by_nfs::later || out.why == by_nfs::refused || out.why == by_nfs::broken_rule;
    if (is_refused && !context.stop.stop_requested()) {
        rests_for = out.why;
        rests_until = shard.clock().now() + user.options_.rest;
    }
    out.again = out.again || out.why == by_nfs::none;
    co_return out;
}

// The server may have given this client as much of the file as it may have: then some of it goes back. Else it is asked again after a while, some times
// (draft 2.6).
task<file_layout::chance> file_layout::ask_later(unsigned& asked)
{
    chance out;
    if (asked++ >= user.options_.tries) {
        out.why = by_nfs::later;
        co_return out;
    }
    out.again = true;
    if (asked == 1 && !map.empty()) {
        auto gone = co_await give_back();
        if (!gone)
            out.why = by_nfs::later;
        co_return out;
    }
    duration wait = user.options_.first_wait * (std::uint64_t(1) << std::min(asked - 1, 20u));
    wait = std::min(wait, user.options_.most_wait);
    const bool slept = co_await sleep_for(wait);
    if (!slept) {
        out.again = false;
        out.why = by_nfs::later;
    }
    co_return out;
}

// For who has the turn.
task<file_layout::answer> file_layout::get(const std::shared_ptr<layout_sharer>& by, layoutiomode4 mode,
                                           std::uint64_t offset, std::uint64_t length, std::uint64_t block)
{
    const bool by_layout = id.has_value();
    LAYOUTGET4args args;
    args.layout_type = layouttype4::rdma;
    args.iomode = mode;
    args.offset = offset;
    args.length = length;
    args.minlength = 1;
    args.stateid = by_layout ? *id : by->plain->stateid();
    args.maxcount = body_of_layouts;
    GETATTR4args wanted;
    wanted.attr_request = {attribute::size};
    operations call(PUTFH4args{node.handle.bytes()}, args, wanted);
    const std::uint64_t now = of.session().incarnation();
    call.yields(body_of_layouts + 512).not_later().only_in(now).written_into(reserve);
    struct asks {
        explicit asks(bool& of) noexcept : is_asking(of) { is_asking = true; }
        asks(const asks&) = delete;
        ~asks() { is_asking = false; }
        bool& is_asking;
    };
    std::optional<asks> asking(is_asking);
    const std::uint64_t changes_before = changes;
    auto ran = co_await of.session().run(call);
    asking.reset();
    answer out;
    if (!ran) {
        // An earlier answer may have been lost, or its GETATTR put off, and the server have given some then.
        user.is_in_doubt_ = true;
        out = refused(ran.error(), by_layout);
        co_return out;
    }
    if (by_layout && !is_of_this_server()) {
        lose(by_nfs::lost);
        out.again = true;
        co_return out;
    }
    rdma_layout_request asked;
    asked.iomode = mode;
    asked.offset = offset;
    asked.length = length;
    asked.minimum = 1;
    asked.ends_early = mode == layoutiomode4::read;
    incarnation = now; // by which it was given, also where the server has started again since
    out.why = take(call.get<1>(), asked, block);
    if (out.why != by_nfs::none) {
        lose(out.why); // it goes back
        co_return out;
    }
    ++user.counts_.got;
    // The server may have seen a hole before a write of this client, whose answer was faster, filled it.
    if (changes != changes_before) {
        map.forget_holes();
        out.is_late = mode == layoutiomode4::read && !map.to_read(offset);
    }
    attributes told;
    if (decode_attributes(call.get<2>().obj_attributes, told) && told.present.test(attribute::size)) {
        size = there = told.size;
        for (const written& each : pending)
            size = std::max(size, each.end());
    }
    co_return out;
}

file_layout::answer file_layout::refused(const error& why, bool by_layout)
{
    answer out;
    out.why = by_nfs::refused;
    if (is_for_later(why)) {
        out.why = by_nfs::none;
        out.is_late = true;
    } else if (is_for_good(why)) {
        out.why = never = by_nfs::unavailable;
    } else if (by_layout && (is_gone(why) || !is_of_this_server())) {
        is_revoked = is_revoked || v4::is_revoked(why);
        lose(by_nfs::lost);
        out.why = by_nfs::none;
        out.again = true;
    }
    return out;
}

// What the server gave is looked at as a whole before any of it is used.
by_nfs file_layout::take(const LAYOUTGET4res& res, const rdma_layout_request& asked, std::uint64_t block)
{
    // What was filled up by the one before is still to be told of.
    if (id && id->other != res.stateid.other)
        map.cut(0, UINT64_MAX, layoutiomode4::any);
    take_number(res.stateid);
    is_revoked = false;
    if (res.layout.empty())
        return by_nfs::broken_rule;
    bool is_first = true;
    std::uint64_t next = asked.offset;
    for (const layout4 each : res.layout) {
        const bool writes = each.iomode == layoutiomode4::rw;
        if (each.type != layouttype4::rdma || (asked.iomode == layoutiomode4::rw && !writes))
            return by_nfs::broken_rule;
        pnfs_rdma_layout4 body;
        xdr::decoder in(each.body);
        xdr::codec<pnfs_rdma_layout4>::decode(in, body);
        if (!in.ok())
            return by_nfs::broken_rule;
        std::vector<pnfs_rdma_extent4> extents;
        extents.reserve(body.extents.size());
        for (const pnfs_rdma_extent4 e : body.extents)
            extents.push_back(e);
        rdma_layout_request rule = asked;
        rule.iomode = each.iomode;
        rule.offset = next;
        rule.minimum = is_first ? asked.minimum : 0;
        if (!v4::broken_rule(extents, rule).empty() || !map.add(extents, each.iomode, block))
            return by_nfs::broken_rule;
        is_first = false;
        next = extents.back().file_offset + extents.back().length;
    }
    return by_nfs::none;
}

task<result<void>> file_layout::be_quiet()
{
    while (under_way != 0 || !given_up.empty()) {
        if (under_way == 0) {
            const std::shared_ptr<data_connection> by = given_up.back();
            auto passed = co_await by->passed();
            if (!passed)
                co_return passed.error();
            std::erase(given_up, by);
            continue;
        }
        quiet.reset();
        const bool is_quiet = co_await quiet.wait();
        if (!is_quiet)
            co_return no_longer_waited_for;
    }
    co_return result<void>();
}

task<result<void>> file_layout::settle()
{
    while (shut || is_lost) {
        if (shut) {
            const bool goes_on = co_await opened.wait();
            if (!goes_on)
                co_return no_longer_waited_for;
            continue;
        }
        auto done = co_await recover();
        if (!done)
            co_return done.error();
    }
    co_return result<void>();
}

// What was written by RDMA and not committed is in doubt: it is written by NFS, the oldest first, and never read from where it was (draft 2.5). The layout
// goes back before, so that nothing of it lands on top.
task<result<void>> file_layout::recover()
{
    const bool mine = co_await turn.acquire();
    if (!mine)
        co_return no_longer_waited_for;
    const held_permit held(turn);
    if (!is_lost)
        co_return result<void>();
    const shutter shuts(*this);
    auto still = co_await be_quiet();
    if (!still)
        co_return still.error();
    const task_context& context = co_await current_context();
    if (id && !is_revoked && is_of_this_server()) {
        const recall all;
        auto gone = co_await give_back_in_turn(all);
        if (!gone)
            co_return gone;
    }
    if (id && is_revoked && is_of_this_server()) {
        operations call(FREE_STATEID4args{*id});
        call.written_into(reserve);
        (void)co_await of.session().run(call);
    }
    is_revoked = false;
    forget_layout();
    recalls.clear();
    if (!pending.empty() && user.options_.requires_layouts)
        co_return not_by_nfs(by_nfs::lost);
    while (!pending.empty()) {
        const std::shared_ptr<layout_sharer> by = writer_of(pending.front());
        // What is closed can't be written any more, and the close() has failed for it.
        if (by == nullptr) {
            pending.clear();
            uncommitted = 0;
            break;
        }
        written& first = pending.front();
        // Somebody else may have written there since.
        if (by->plain->has_lost_locks()) {
            by->has_lost_bytes = true;
            uncommitted -= first.data.size();
            pending.erase(pending.begin());
            continue;
        }
        auto again = co_await by->plain->write(first.offset, share(first.data));
        if (!again)
            co_return again.error();
        user.counts_.written_by_nfs += first.data.size();
        ++user.counts_.by_reason[static_cast<std::size_t>(by_nfs::lost)];
        uncommitted -= first.data.size();
        pending.erase(pending.begin());
    }
    // Else commit() of an open file would leave to the commit of another one what it wrote, and a restart have them send theirs again in any order.
    auto committed = co_await commit_by_nfs();
    if (!committed)
        co_return committed.error();
    is_lost = false;
    rests_for = last;
    rests_until = context.shard->clock().now() + user.options_.rest;
    co_return result<void>();
}

} // namespace verbena::nfs::v4::pnfs
