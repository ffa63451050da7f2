// SPDX-License-Identifier: Apache-2.0
// How a client commits what it wrote by the layouts of a file, and gives them back.
#include "file_layout.hpp"
#include "layout_answers.hpp"

#include <verbena/core/task/sleep.hpp>

#include <algorithm>
#include <array>
#include <utility>

namespace verbena::nfs::v4::pnfs {
namespace {

constexpr std::size_t most_recalls = 16;
constexpr unsigned most_behind = 16; // numbers of a stateid that nobody heard of
constexpr std::uint64_t whole_file = UINT64_MAX;

} // namespace

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
    auto told = co_await tell(args);
    if (!told)
        co_return told.error();
    if (*told)
        map.told(ranges);
    co_return result<void>();
}

task<result<bool>> file_layout::tell(const LAYOUTCOMMIT4args& args)
{
    operations call(PUTFH4args{node.handle.bytes()}, args);
    call.only_in(incarnation).written_into(reserve);
    is_changed();
    auto ran = co_await of.session().run(call);
    is_changed();
    if (!ran && (is_a_status(ran.error()) || !is_of_this_server())) {
        // Whatever it is, writing by NFS works, or tells it better.
        is_revoked = is_revoked || v4::is_revoked(ran.error());
        lose(by_nfs::lost);
        co_return false;
    }
    if (!ran)
        co_return ran.error();
    ++user.counts_.commits;
    size = std::max(size, call.get<1>().newsize.value_or(0));
    co_return true;
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
    if (is_lost || !id || reached == offset || reached <= there)
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
    auto told = co_await tell(args);
    if (!told)
        co_return told.error();
    if (*told) {
        there = std::max(there, reached);
        size = std::max(size, there);
    }
    co_return result<void>();
}

// A Read Response proves that the Writes before it on its connection are placed (RFC 5040 5.5). Until then a connection stays in `unplaced`: whoever connects
// anew meanwhile has to know of it.
task<result<void>> file_layout::flush()
{
    const std::vector<unflushed> those = unplaced;
    for (const unflushed& each : those) {
        auto done = co_await each.by->flush(each.handle, each.address);
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

template<class Said>
task<result<std::optional<stateid4>>> file_layout::send_return_behind(const Said& said,
                                                                      const LAYOUTRETURN4args& args,
                                                                      bool& is_taken, nfsstat4& refusal)
{
    operations call(PUTFH4args{node.handle.bytes()}, said, args);
    call.once().not_later().only_in(incarnation).written_into(reserve);
    auto ran = co_await of.session().run(call);
    refusal = call.template get<1>().status;
    if (!ran) {
        // No server that has none of it is asked again.
        if (refusal == nfsstat4::notsupp || answers_with(ran.error(), nfsstat4::op_illegal))
            is_taken = false;
        co_return ran.error();
    }
    co_return call.template get<2>().stateid;
}

// LAYOUTERROR and LAYOUTSTATS (7862 15.6, 15.7) go with it: they cost no call, and no I/O waits for them. Whatever the server has against them, the layout
// goes back, by a call of its own.
task<result<std::optional<stateid4>>> file_layout::send_return(const LAYOUTRETURN4args& args)
{
    const bool has_them = of.session().minor_version() >= 2;
    nfsstat4 refusal = nfsstat4::ok;
    if (has_them && failure && user.takes_errors_) {
        const std::optional<device_error4> told = std::exchange(failure, std::nullopt);
        LAYOUTERROR4args said;
        said.length = whole_file;
        said.stateid = args.layoutreturn.stateid;
        said.errors = std::span<const device_error4>(&*told, 1);
        auto ran = co_await send_return_behind(said, args, user.takes_errors_, refusal);
        if (refusal == nfsstat4::old_stateid)
            failure = told;
        if (ran || !is_a_status(ran.error()) || answers_with(ran.error(), nfsstat4::old_stateid))
            co_return ran;
    } else if (has_them && moved.read.count + moved.written.count != 0 && user.takes_stats_) {
        const moved_bytes told = std::exchange(moved, moved_bytes());
        LAYOUTSTATS4args said;
        said.length = whole_file;
        said.stateid = args.layoutreturn.stateid;
        said.read = told.read;
        said.write = told.written;
        said.deviceid = told.device;
        said.layout_type = layouttype4::rdma;
        auto ran = co_await send_return_behind(said, args, user.takes_stats_, refusal);
        if (refusal == nfsstat4::old_stateid)
            moved = told;
        if (ran || !is_a_status(ran.error()) || answers_with(ran.error(), nfsstat4::old_stateid))
            co_return ran;
    }
    operations call(PUTFH4args{node.handle.bytes()}, args);
    call.once().only_in(incarnation).written_into(reserve);
    auto ran = co_await of.session().run(call);
    if (!ran)
        co_return ran.error();
    co_return call.get<1>().stateid;
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
        auto ran = co_await send_return(args);
        if (!id)
            co_return result<void>();
        if (ran) {
            ++user.counts_.returned;
            if (*ran && !is_all)
                take_number(**ran);
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

task<result<void>> file_layout::come_to_rest()
{
    auto still = co_await be_quiet();
    if (!still)
        co_return still.error();
    while (!is_lost && (!pending.empty() || !map.told_later().empty())) {
        auto done = co_await commit_in_turn();
        if (!done)
            co_return done.error();
    }
    co_return result<void>();
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
        auto at_rest = co_await come_to_rest();
        if (!at_rest)
            co_return at_rest.error();
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
    // Closing takes its time, and another recall may come meanwhile.
    while (goes_on && (!recalls.empty() || !left.empty())) {
        if (recalls.empty()) {
            co_await close_those_left();
            continue;
        }
        const auto done = co_await give_next_back();
        if (done) {
            wait = user.options_.first_wait;
            continue;
        }
        if (sharers.empty()) {
            recalls.clear();
            let_go();
        }
        // Nobody who closes waits for a server that does not take it.
        co_await close_those_left();
        if (!recalls.empty())
            goes_on = co_await sleep_for(wait);
        wait = std::min(2 * wait, user.options_.rest);
    }
    if (sharers.empty())
        let_go();
    co_await close_those_left();
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
    auto at_rest = co_await come_to_rest();
    if (!at_rest)
        co_return at_rest.error();
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
