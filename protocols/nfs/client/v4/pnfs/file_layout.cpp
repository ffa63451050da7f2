// SPDX-License-Identifier: Apache-2.0
// How a client gets the layouts of a file, commits what it wrote by them, gives them back and loses them.
#include "file_layout.hpp"

#include <verbena/core/reactor/reactor.hpp>
#include <verbena/core/task/sleep.hpp>

#include <algorithm>
#include <array>

namespace verbena::nfs::v4::pnfs {
namespace {

constexpr std::uint32_t body_of_layouts = 256 * 48 + 64; // bytes: as many extents as our servers give
constexpr std::size_t most_recalls = 16;
constexpr unsigned most_behind = 16; // numbers of a stateid that nobody heard of
constexpr std::uint64_t whole_file = UINT64_MAX;

const error no_longer_waited_for(std::errc::operation_canceled, "layouts of a file");

bool is_a_status(const error& e) noexcept
{
    return e.code().category() == make_error_code(nfsstat4::ok).category();
}

bool answers_with(const error& e, nfsstat4 status) noexcept { return e.code() == make_error_code(status); }

// It will be the same for as long as the file is open.
bool is_for_good(const error& e) noexcept
{
    return answers_with(e, nfsstat4::layoutunavailable) || answers_with(e, nfsstat4::unknown_layouttype) ||
           answers_with(e, nfsstat4::notsupp) || answers_with(e, nfsstat4::op_illegal);
}

bool is_for_later(const error& e) noexcept
{
    return answers_with(e, nfsstat4::layouttrylater) || answers_with(e, nfsstat4::recallconflict) ||
           answers_with(e, nfsstat4::delay) || answers_with(e, nfsstat4::grace);
}

// The member of that name is another one.
bool is_revoked_by(const error& e) noexcept { return v4::is_revoked(e); }

} // namespace

file_layout::file_layout(layout_user& u, std::unique_ptr<v4::file> f, std::size_t n)
    : user(u), of(u.client_), plain(std::move(f)), lane(n), size(plain->node().attributes.size), there(size)
{
    opened.set();
    quiet.set();
    user.files_.push_back(this);
}

file_layout::~file_layout() { std::erase(user.files_, this); }

bool file_layout::is_of_this_server() const noexcept { return incarnation == of.session().incarnation(); }

void file_layout::end() noexcept
{
    closed = true;
    if (!is_giving_back)
        forget_layout();
}

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
}

void file_layout::lose(by_nfs why) noexcept
{
    if (!std::exchange(is_lost, true))
        ++user.counts_.lost;
    last = why;
}

task<file_layout::chance> file_layout::have(layoutiomode4 mode, std::uint64_t offset, std::uint64_t length,
                                            unsigned& asked)
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
        // What it gave may be somebody else's once the lease is over (8881 8.4).
        if (!of.session().lease_holds())
            out.why = by_nfs::no_lease;
        co_return out;
    }
    out = co_await ask(mode, offset, length, asked);
    co_return out;
}

by_nfs file_layout::why_not_ask(layoutiomode4 mode, std::uint64_t end) const noexcept
{
    if (never != by_nfs::none)
        return never;
    if (!of.session().may_get_layouts())
        return by_nfs::no_server;
    if (!of.session().can_be_called())
        return by_nfs::no_way_back;
    const std::uint64_t all = mode == layoutiomode4::read ? size : std::max(std::max(size, expected), end);
    if (all < user.options_.least)
        return by_nfs::small;
    const file_layout* const other = user.holder_of(plain->node().handle);
    if (other != nullptr && other != this)
        return by_nfs::other_file;
    return by_nfs::none;
}

task<file_layout::chance> file_layout::ask(layoutiomode4 mode, std::uint64_t offset, std::uint64_t length,
                                           unsigned& asked)
{
    chance out;
    out.why = why_not_ask(mode, offset + length);
    if (out.why != by_nfs::none)
        co_return out;
    const task_context& context = co_await current_context();
    reactor& shard = *context.shard;
    if (shard.clock().now() < rests_until) {
        out.why = rests_for;
        co_return out;
    }
    const auto system = co_await user.look_at(plain->node());
    if (!system) {
        out.why = by_nfs::refused;
        co_return out;
    }
    if (!system->has_type) {
        out.why = never = by_nfs::no_type;
        co_return out;
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
        const file_layout* const holder = user.holder_of(plain->node().handle);
        if (is_lost || has || (holder != nullptr && holder != this)) {
            out.again = true; // somebody else has asked
            co_return out;
        }
        if (map.size() + max_rdma_extents > layout_map::max_extents) {
            got.is_late = true;
        } else {
            const std::uint64_t most = writes ? user.options_.write_ahead : user.options_.read_ahead;
            std::uint64_t ahead = writes && expected > offset ? expected - offset : length;
            if (!writes)
                ahead = size > offset ? size - offset : length;
            got = co_await get(mode, offset, std::min(std::max(ahead, length), std::max(most, length)),
                               system->block);
        }
    }
    out.why = got.why;
    out.again = got.again;
    if (got.is_late)
        out = co_await ask_later(asked);
    if (out.why == by_nfs::later || out.why == by_nfs::refused || out.why == by_nfs::broken_rule) {
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
task<file_layout::answer> file_layout::get(layoutiomode4 mode, std::uint64_t offset, std::uint64_t length,
                                           std::uint64_t block)
{
    const bool by_layout = id.has_value();
    LAYOUTGET4args args;
    args.layout_type = layouttype4::rdma;
    args.iomode = mode;
    args.offset = offset;
    args.length = length;
    args.minlength = 1;
    args.stateid = by_layout ? *id : plain->stateid();
    args.maxcount = body_of_layouts;
    GETATTR4args wanted;
    wanted.attr_request = {attribute::size};
    operations call(PUTFH4args{plain->node().handle.bytes()}, args, wanted);
    const std::uint64_t now = of.session().incarnation();
    call.yields(body_of_layouts + 512).not_later().only_in(now);
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
    incarnation = of.session().incarnation();
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
        is_revoked = is_revoked || is_revoked_by(why);
        lose(by_nfs::lost);
        out.why = by_nfs::none;
        out.again = true;
    }
    return out;
}

// What the server gave is looked at as a whole before any of it is used.
by_nfs file_layout::take(const LAYOUTGET4res& res, const rdma_layout_request& asked, std::uint64_t block)
{
    if (id && id->other != res.stateid.other)
        map.clear();
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
    while (under_way != 0) {
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
        (void)co_await of.session().run(call);
    }
    is_revoked = false;
    forget_layout();
    recalls.clear();
    if (!pending.empty() && user.options_.requires_layouts)
        co_return not_by_nfs(by_nfs::lost);
    // What is closed can't be written any more, and the close() has failed for it.
    if (closed) {
        pending.clear();
        uncommitted = 0;
    }
    while (!pending.empty()) {
        written& first = pending.front();
        auto again = co_await plain->write(first.offset, share(first.data));
        if (!again)
            co_return again.error();
        user.counts_.written_by_nfs += first.data.size();
        ++user.counts_.by_reason[static_cast<std::size_t>(by_nfs::lost)];
        uncommitted -= first.data.size();
        pending.erase(pending.begin());
    }
    is_lost = false;
    rests_for = last;
    rests_until = context.shard->clock().now() +
                  (last == by_nfs::no_connection ? user.options_.connections.rest : user.options_.rest);
    co_return result<void>();
}

task<result<void>> file_layout::commit()
{
    for (;;) {
        auto settled = co_await settle();
        if (!settled)
            co_return settled.error();
        if (pending.empty() && map.told_later().empty())
            co_return result<void>();
        const bool mine = co_await turn.acquire();
        if (!mine)
            co_return no_longer_waited_for;
        const held_permit held(turn);
        if (is_lost)
            continue;
        auto done = co_await commit_in_turn();
        if (!done || !is_lost)
            co_return done;
    }
}

// Where the layout is found to be lost, that is no error.
task<result<void>> file_layout::commit_in_turn()
{
    if (pending.empty() && map.told_later().empty())
        co_return result<void>();
    if (!id || !is_of_this_server()) {
        lose(by_nfs::lost);
        co_return result<void>();
    }
    const std::uint64_t upto = number;
    const bool has_written = !pending.empty();
    std::uint64_t begin = UINT64_MAX;
    std::uint64_t end = 0;
    for (const written& each : pending) {
        begin = std::min(begin, each.offset);
        end = std::max(end, each.end());
    }
    const auto later = map.told_later();
    const std::vector<pnfs_rdma_range4> ranges(later.begin(), later.end());
    auto placed = co_await flush();
    if (!placed)
        co_return placed;
    // As many calls as the ranges need; the last one tells of the bytes, which are kept until then.
    for (std::size_t done = 0;;) {
        if (is_lost || !id)
            co_return result<void>();
        const auto some =
            std::span(ranges).subspan(done, std::min<std::size_t>(ranges.size() - done, max_rdma_ranges));
        done += some.size();
        const bool is_last = done == ranges.size();
        auto told = co_await commit_some(some, is_last ? begin : UINT64_MAX, is_last ? end : 0);
        if (!told)
            co_return told;
        if (is_last)
            break;
    }
    if (is_lost)
        co_return result<void>();
    if (has_written)
        there = std::max(there, end);
    std::erase_if(pending, [&](const written& each) {
        if (each.number >= upto)
            return false;
        uncommitted -= each.data.size();
        return true;
    });
    co_return result<void>();
}

// LAYOUTCOMMIT of these blocks, and of the bytes [begin, end) if there are some, which tell how long the file is: blocks go on behind that.
task<result<void>> file_layout::commit_some(std::span<const pnfs_rdma_range4> ranges, std::uint64_t begin,
                                            std::uint64_t end)
{
    std::vector<std::byte> body(4 + ranges.size() * 16);
    xdr::encoder out(body);
    pnfs_rdma_layoutupdate4 update;
    update.commit_list = ranges;
    xdr::codec<pnfs_rdma_layoutupdate4>::encode(out, update);
    LAYOUTCOMMIT4args args;
    if (begin < end)
        args.last_write_offset = end - 1;
    if (!ranges.empty()) {
        begin = std::min(begin, ranges.front().file_offset);
        end = std::max(end, ranges.back().file_offset + ranges.back().length);
    }
    args.offset = begin;
    args.length = end - begin;
    args.stateid = *id;
    args.layout_type = layouttype4::rdma;
    args.update_body = out.bytes();
    operations call(PUTFH4args{plain->node().handle.bytes()}, args);
    call.only_in(incarnation);
    plain->is_changed_by_layout();
    auto ran = co_await of.session().run(call);
    plain->is_changed_by_layout();
    if (!ran && (is_a_status(ran.error()) || !is_of_this_server())) {
        // Whatever it is, writing by NFS works, or tells it better.
        is_revoked = is_revoked || is_revoked_by(ran.error());
        lose(by_nfs::lost);
        co_return result<void>();
    }
    if (!ran)
        co_return ran.error();
    ++user.counts_.commits;
    size = std::max(size, call.get<1>().newsize.value_or(0));
    map.told(ranges);
    co_return result<void>();
}

// Before bytes are written behind the end: if the file grew by another way meanwhile, the server would put zeros over them, as it can't know that they are
// the file's.
task<result<void>> file_layout::extend(std::uint64_t offset, std::uint64_t end)
{
    const bool mine = co_await turn.acquire();
    if (!mine)
        co_return no_longer_waited_for;
    const held_permit held(turn);
    std::uint64_t reached = offset;
    for (std::optional<layout_map::place> at = map.to_write(offset); at && reached < end;
         at = map.to_write(reached))
        reached = std::min(end, reached + at->length);
    if (is_lost || !id || reached <= there)
        co_return result<void>(); // what comes next looks again
    if (!is_of_this_server()) {
        lose(by_nfs::lost);
        co_return result<void>();
    }
    static constexpr std::array<std::byte, 4> no_ranges{};
    LAYOUTCOMMIT4args args;
    args.offset = offset;
    args.length = reached - offset;
    args.stateid = *id;
    args.last_write_offset = reached - 1;
    args.layout_type = layouttype4::rdma;
    args.update_body = std::span<const std::byte>(no_ranges);
    operations call(PUTFH4args{plain->node().handle.bytes()}, args);
    call.only_in(incarnation);
    plain->is_changed_by_layout();
    auto ran = co_await of.session().run(call);
    plain->is_changed_by_layout();
    if (!ran && (is_a_status(ran.error()) || !is_of_this_server())) {
        is_revoked = is_revoked || is_revoked_by(ran.error());
        lose(by_nfs::lost);
        co_return result<void>();
    }
    if (!ran)
        co_return ran.error();
    ++user.counts_.commits;
    there = std::max(there, reached);
    size = std::max(size, there);
    co_return result<void>();
}

// A Read Response proves that the Writes before it on its connection are placed (RFC 5040 5.5). Until then a connection stays in `unplaced`: whoever connects
// anew meanwhile has to know of it.
task<result<void>> file_layout::flush()
{
    const std::vector<unflushed> those = unplaced;
    for (const unflushed& each : those) {
        lease memory = co_await user.pool_.acquire(buffer_pool::min_size);
        result<void> done = no_longer_waited_for;
        if (memory) {
            data_connection::piece byte;
            byte.here = memory.bytes().first(1);
            byte.handle = each.handle;
            byte.address = each.address;
            done = co_await each.by->read(std::span(&byte, 1), memory);
        }
        if (!done && done.error() == std::errc::operation_canceled)
            co_return done.error();
        if (!done) {
            lose(by_nfs::lost);
            break;
        }
        std::erase_if(unplaced,
                      [&](const unflushed& u) { return u.by == each.by && u.last_write == each.last_write; });
    }
    co_return result<void>();
}

// Where nobody heard an answer, or the server puts it off, what was had stays on its list, and is used no more: the caller may try again.
task<result<void>> file_layout::give_back_in_turn(recall what)
{
    const bool is_all = what.mode == layoutiomode4::any && what.offset == 0 && what.length == whole_file;
    map.cut(what.offset, what.length, what.mode);
    for (unsigned behind = 0;; ++behind) {
        LAYOUTRETURN4args args;
        args.layout_type = layouttype4::rdma;
        args.iomode = what.mode;
        args.layoutreturn.returntype = layoutreturn_type4::file;
        args.layoutreturn.offset = what.offset;
        args.layoutreturn.length = what.length;
        args.layoutreturn.stateid = *id;
        operations call(PUTFH4args{plain->node().handle.bytes()}, args);
        call.once().only_in(incarnation);
        auto ran = co_await of.session().run(call);
        if (!id)
            co_return result<void>();
        if (ran) {
            ++user.counts_.returned;
            if (call.get<1>().stateid && !is_all)
                take_number(*call.get<1>().stateid);
            else
                forget_layout();
            co_return result<void>();
        }
        user.is_in_doubt_ = true;
        // The server has counted on for a call whose answer nobody heard.
        if (answers_with(ran.error(), nfsstat4::old_stateid) && behind < most_behind) {
            if (id->seqid == args.layoutreturn.stateid.seqid)
                id->seqid = next_seqid(id->seqid);
            continue;
        }
        if (is_of_this_server() && (!is_a_status(ran.error()) || is_for_later(ran.error())))
            co_return ran.error();
        forget_layout(); // the server knows none
        co_return result<void>();
    }
}

task<result<void>> file_layout::give_back()
{
    for (;;) {
        auto settled = co_await settle();
        if (!settled)
            co_return settled.error();
        const bool mine = co_await turn.acquire();
        if (!mine)
            co_return no_longer_waited_for;
        const held_permit held(turn);
        if (is_lost)
            continue;
        if (!id)
            co_return result<void>();
        const shutter shuts(*this);
        auto still = co_await be_quiet();
        if (!still)
            co_return still.error();
        while (!is_lost && (!pending.empty() || !map.told_later().empty())) {
            auto done = co_await commit_in_turn();
            if (!done)
                co_return done.error();
        }
        if (is_lost)
            continue; // the turn and the gate go first
        const recall all;
        (void)co_await give_back_in_turn(all);
        co_return result<void>();
    }
}

// 8881 12.5.5.2.1: a recall of what the client has not heard of yet waits for that.
nfsstat4 file_layout::answer_to(const CB_LAYOUTRECALL4args& args) const noexcept
{
    const nfsstat4 none = is_asking ? nfsstat4::delay : nfsstat4::nomatching_layout;
    if (!id || !is_of_this_server())
        return none;
    const bool of_file = args.recall.recalltype == layoutrecall_type4::file;
    if (of_file && args.recall.stateid.other != id->other)
        return none;
    if (recalls.size() >= most_recalls)
        return nfsstat4::delay;
    // One of all files names no number: an answer that is on its way may give what it asks for.
    if (is_asking && (!of_file || compare_seqids(args.recall.stateid.seqid, id->seqid) > 1))
        return nfsstat4::delay;
    return nfsstat4::ok;
}

void file_layout::note_recall(const CB_LAYOUTRECALL4args& args)
{
    recall wanted;
    wanted.mode = args.iomode;
    if (args.recall.recalltype == layoutrecall_type4::file) {
        wanted.offset = args.recall.offset;
        wanted.length = args.recall.length;
    }
    recalls.push_back(wanted);
    if (args.recall.recalltype == layoutrecall_type4::file)
        take_number(args.recall.stateid);
    ++user.counts_.recalled;
}

// I/O that is under way ends, what was written is committed, and then it goes back. Whatever fails is tried again: the server waits for it. Where it is over,
// as the server revokes layouts or starts again, it says so.
task<void> file_layout::give_recalled_back()
{
    const std::shared_ptr<file_layout> stays = shared_from_this();
    struct giving {
        explicit giving(file_layout& f) noexcept : of(f) { of.gave_back.reset(); }
        giving(const giving&) = delete;
        ~giving()
        {
            of.is_giving_back = false;
            of.gave_back.set();
        }
        file_layout& of;
    };
    if (std::exchange(is_giving_back, true)) {
        (void)co_await gave_back.wait();
        co_return;
    }
    const giving ends(*this);
    // Whoever recalls it is answered first.
    bool goes_on = co_await sleep_for(duration::zero());
    duration wait = user.options_.first_wait;
    while (goes_on && !recalls.empty()) {
        const auto done = co_await give_next_back();
        if (done) {
            wait = user.options_.first_wait;
            continue;
        }
        goes_on = !closed;
        if (goes_on)
            goes_on = co_await sleep_for(wait);
        wait = std::min(2 * wait, user.options_.rest);
    }
    if (!closed)
        co_return;
    forget_layout();
    if (is_left_open)
        closing = co_await plain->close();
}

task<result<void>> file_layout::give_next_back()
{
    auto settled = co_await settle(); // where it is lost, all goes back
    if (!settled)
        co_return settled.error();
    const bool mine = co_await turn.acquire();
    if (!mine)
        co_return no_longer_waited_for;
    const held_permit held(turn);
    if (is_lost || recalls.empty())
        co_return result<void>();
    const shutter shuts(*this);
    auto still = co_await be_quiet();
    if (!still)
        co_return still.error();
    while (!is_lost && (!pending.empty() || !map.told_later().empty())) {
        auto done = co_await commit_in_turn();
        if (!done)
            co_return done.error();
    }
    if (is_lost || recalls.empty())
        co_return result<void>();
    if (id && is_of_this_server()) {
        auto gone = co_await give_back_in_turn(recalls.front());
        if (!gone)
            co_return gone.error();
        recalls.erase(recalls.begin());
    }
    if (!id || !is_of_this_server())
        recalls.clear();
    co_return result<void>();
}

} // namespace verbena::nfs::v4::pnfs
