// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/nfs/client/v4/file.hpp>

#include "server_open.hpp"

#include <algorithm>
#include <optional>
#include <utility>

namespace verbena::nfs::v4 {
namespace {

// PUTFH and READ, WRITE or COMMIT, without data: little enough to come inline whatever the transport.
constexpr std::size_t few_results = 64;

// More than that is asked for in several calls, so that somebody sees progress, and a repeat is short.
constexpr std::uint64_t copied_at_once = std::uint64_t(64) << 20;

} // namespace

/// Counts a WRITE, or what else changes the file, while it is under way.
class file::change_under_way {
public:
    /// `end`: so long the file is then at least, if that is known, and it is not cut.
    explicit change_under_way(file& f, std::optional<std::uint64_t> end = std::nullopt) noexcept
        : client_(f.client_), open_(f.open_), is_measured_(end.has_value())
    {
        open_->reaches = std::max(open_->reaches, end.value_or(0));
        open_->unmeasured += !is_measured_;
        begun_ = ++open_->writes_begun;
        is_alone_ = ++open_->writes == 1;
        client_.changed(open_->handle, open_.get());
    }
    change_under_way(const change_under_way&) = delete;
    ~change_under_way()
    {
        open_->is_size_in_doubt = open_->is_size_in_doubt || !is_known_;
        client_.changed(open_->handle, open_.get());
        open_->unmeasured -= !is_measured_;
        if (--open_->writes == 0) {
            open_->reaches = 0;
            open_->quiet.set();
        }
    }

    /// The server has done it, and the file goes on to `end` at least.
    void reached(std::uint64_t end) noexcept
    {
        open_->size = std::max(open_->size, end);
        is_known_ = true;
    }
    /// Likewise, and has this size, unless something else was under way meanwhile: which of the two the server has done
    /// last, answers don't tell.
    void has_size(std::uint64_t size) noexcept
    {
        open_->size = size;
        is_known_ = is_alone_ && begun_ == open_->writes_begun;
    }

private:
    client& client_;
    const std::shared_ptr<server_open> open_;
    const bool is_measured_;
    bool is_known_ = false; // what it came to
    bool is_alone_;         // when it began
    std::uint64_t begun_;
};

file::~file()
{
    leave();
    // The server keeps it, and nobody takes it back after a restart.
    if (open_->users.empty() && !open_->has_delegation())
        client_.forget(*open_);
}

void file::leave() noexcept
{
    std::erase(open_->users, this);
    std::erase_if(open_->committing, [this](const auto& each) { return each.first == this; });
    if (locks_)
        std::erase(open_->locks, locks_);
}

bool file::has_lost_locks() const noexcept { return locks_ && locks_->is_lost; }

error file::told(error why) const { return has_lost_locks() ? locks_are_lost : why; }

// The lock's where there is one (8881 8.2.5): what the server took away is not written over then.
stateid4 file::id() const noexcept
{
    if (locks_ && locks_->is_known && !locks_->ranges.empty())
        return locks_->id;
    return open_->id_for(access_);
}

task<result<void>> file::reopen(stateid4 instead_of)
{
    const std::shared_ptr<server_open> o = open_;
    const bool mine = co_await o->turn.acquire();
    if (!mine)
        co_return error(std::errc::operation_canceled, "OPEN");
    const held_permit held(o->turn);
    if (!(id() == instead_of))
        co_return result<void>();
    const owner_name owner(o->owner);
    const std::uint32_t access = access_ | o->access | o->access_used();
    operations call(PUTFH4args{o->handle.bytes()}, opening_of(owner, access));
    call.once();
    o->in_doubt = true;
    const client::asking under_way(client_);
    auto ran = co_await client_.session_.run(call);
    if (ran || ran.error().code().category() == make_error_code(nfsstat4::ok).category())
        o->in_doubt = false;
    if (ran)
        co_await client_.take_open(o, call.get<1>(), access, under_way.number());
    co_return ran;
}

// Whether a call with `used` that failed for `why` is worth another try.
task<bool> file::mended(stateid4 used, error why)
{
    if (!is_gone(why))
        co_return false;
    if (locks_ && locks_->is_known && used == locks_->id) {
        const std::shared_ptr<file_locks> l = locks_;
        l->lose();
        if (is_revoked(why))
            co_await client_.free_stateid(used);
        co_return !l->is_lost;
    }
    if (open_->has_delegation() && used == open_->delegation)
        client_.drop_delegation(open_);
    if (is_revoked(why))
        co_await client_.free_stateid(used);
    auto again = co_await reopen(used);
    co_return again.has_value() && !has_lost_locks();
}

task<result<file::read_result>> file::read(std::uint64_t offset, std::uint32_t count)
{
    if ((access_ & share4::access_read) == 0 && open_->access != access_)
        co_return not_opened_for_this;
    if (has_lost_locks())
        co_return locks_are_lost;
    count = std::min(count, client_.limits().read);
    for (bool first = true;; first = false) {
        READ4args args;
        args.stateid = id();
        args.offset = offset;
        args.count = count;
        operations call(PUTFH4args{node_.handle.bytes()}, args);
        call.yields(few_results).yields_item(count);
        auto ran = co_await client_.session_.run(call);
        if (!ran) {
            if (!first)
                co_return ran.error();
            const bool again = co_await mended(args.stateid, ran.error());
            if (!again)
                co_return told(ran.error());
            continue;
        }
        const READ4res& res = call.get<1>();
        if (res.data.length > count)
            co_return error(std::errc::protocol_error, "READ returned more than was asked", res.data.length);
        auto data = call.reply().take(res.data);
        if (!data)
            co_return data.error();
        read_result out;
        out.data = std::move(*data);
        out.eof = res.eof;
        const std::uint64_t end = offset + out.data.size();
        const bool beyond = end > node_.attributes.size && !out.data.empty();
        if (count == 0 || (!beyond && !res.eof && !out.data.empty()) ||
            (res.eof && !beyond && end >= node_.attributes.size))
            co_return std::move(out);
        // It has been written or cut since it was looked at, or the server is wrong.
        auto now = co_await client_.getattr(node_.handle);
        if (!now)
            co_return now.error();
        node_.attributes = *now;
        if (beyond && end > now->size)
            co_return error(std::errc::io_error, "READ gives bytes beyond the size that the server tells",
                            now->size);
        if (!out.data.empty()) {
            out.eof = res.eof && end >= now->size; // else the next READ tells
            co_return std::move(out);
        }
        if (res.eof && offset >= now->size)
            co_return std::move(out);
        // Somebody may have cut it in between.
        if (!first)
            co_return error(std::errc::io_error, "READ gives nothing although the file goes on", offset);
    }
}

// One COPY, with both files opened again once where the server has forgotten one of them.
task<result<file::copied>> file::copy_some(file& source, std::uint64_t at, std::uint64_t count)
{
    change_under_way changing(*this);
    for (bool first = true;; first = false) {
        if (has_lost_locks() || source.has_lost_locks())
            co_return locks_are_lost;
        COPY4args args;
        args.src_stateid = source.id();
        args.dst_stateid = id();
        args.src_offset = args.dst_offset = at;
        args.count = count;
        args.consecutive = args.synchronous = true;
        operations call(PUTFH4args{source.node_.handle.bytes()}, SAVEFH4args(),
                        PUTFH4args{node_.handle.bytes()}, args);
        call.once(); // its repeat would copy all of it again
        auto ran = co_await client_.session_.run(call);
        if (!ran) {
            if (!first)
                co_return ran.error();
            const bool again = co_await mended(args.dst_stateid, ran.error());
            if (!again)
                co_return told(ran.error());
            (void)co_await source.mended(args.src_stateid, ran.error());
            continue;
        }
        const write_response4& res = call.get<3>().response;
        // Nobody would hear of its end: CB_OFFLOAD is not served.
        if (res.callback_id)
            co_return error(std::errc::not_supported, "COPY that goes on behind its answer");
        if (res.count > count)
            co_return error(std::errc::protocol_error, "COPY copied more than was asked", res.count);
        changing.reached(res.count == 0 ? 0 : at + res.count);
        copied out;
        out.bytes = res.count;
        out.stable = res.committed != stable_how4::unstable;
        out.verifier = res.writeverf;
        co_return out;
    }
}

task<result<std::uint64_t>> file::copy_from(file& source, std::uint64_t length,
                                            std::function<void(std::uint64_t)> progress)
{
    if (client_.session_.minor_version() < 2)
        co_return error(std::errc::not_supported, "COPY is of minor version 2");
    // A commit that comes later would send again what was written here before, over what is copied.
    auto committed = co_await commit();
    if (!committed)
        co_return committed.error();
    for (unsigned losses = 0;; ++losses) {
        std::uint64_t done = 0;
        std::optional<verifier4> unstable; // of what is to be committed
        bool lost = false;
        while (done < length) {
            const std::uint64_t count = std::min(length - done, copied_at_once);
            auto some = co_await copy_some(source, done, count);
            // One that failed may have copied some of it.
            const std::uint64_t reached = done + (some ? some->bytes : count);
            node_.attributes.size = std::max(node_.attributes.size, reached);
            if (!some)
                co_return some.error();
            if (some->bytes == 0)
                break;
            // Nobody has the data to send them again: if the server has started anew in between, all is copied again.
            if (!some->stable) {
                lost = lost || (unstable && *unstable != some->verifier);
                unstable = some->verifier;
            }
            done += some->bytes;
            if (progress)
                progress(some->bytes);
        }
        if (unstable && !lost) {
            auto verifier = co_await sync();
            if (!verifier)
                co_return verifier.error();
            lost = *verifier != *unstable;
        }
        if (!lost)
            co_return done;
        if (losses >= max_resends)
            co_return error(std::errc::io_error, "the server keeps losing what it copied", done);
    }
}

void file::is_changed_by_layout() noexcept { client_.changed_for_delegations(open_->handle, nullptr); }

task<result<void>> file::truncate(std::uint64_t size)
{
    if ((access_ & share4::access_write) == 0 && open_->access != access_)
        co_return not_opened_for_this;
    if (has_lost_locks())
        co_return locks_are_lost;
    change_under_way changing(*this);
    new_attributes wanted;
    wanted.size = size;
    const encoded_attributes encoded(wanted);
    for (bool first = true;; first = false) {
        SETATTR4args args;
        args.stateid = id();
        args.obj_attributes = encoded.raw();
        operations call(PUTFH4args{node_.handle.bytes()}, args);
        call.once();
        auto ran = co_await client_.session_.run(call);
        if (ran) {
            node_.attributes.size = size;
            changing.has_size(size);
        }
        if (ran || !first)
            co_return ran;
        const bool again = co_await mended(args.stateid, ran.error());
        if (!again)
            co_return told(ran.error());
    }
}

task<result<void>> file::close()
{
    auto committed = co_await commit();
    if (has_lost_locks()) {
        auto dropped = co_await drop_what_is_lost();
        if (!dropped)
            committed = dropped.error();
    }
    // By the same owner, so that it is the same open if there is one.
    if (open_->in_doubt)
        (void)co_await reopen(id());
    result<void> ran;
    if (locks_)
        ran = co_await unlock_all();
    leave();
    if (!open_->has_delegation() && open_->users.empty()) {
        auto closed = co_await client_.close_open(open_);
        if (ran || closed)
            ran = closed; // which takes locks along
    }
    if (!committed)
        co_return committed.error();
    co_return ran;
}

task<result<write_result>> file::send(std::uint64_t offset, rpc::payload data)
{
    if (data.size() > client_session::max_transfer)
        co_return error(std::errc::message_size, "WRITE longer than client_session::max_transfer",
                        data.size());
    if ((access_ & share4::access_write) == 0 && open_->access != access_)
        co_return not_opened_for_this;
    if (has_lost_locks())
        co_return locks_are_lost;
    change_under_way changing(*this, data.empty() ? 0 : offset + data.size());
    for (bool first = true;; first = false) {
        WRITE4args args;
        args.stateid = id();
        args.offset = offset;
        args.stable = stable_how4::unstable;
        args.data.external = true;
        args.data.length = static_cast<std::uint32_t>(data.size());
        operations call(PUTFH4args{node_.handle.bytes()}, args);
        call.yields(few_results).carries(data);
        auto ran = co_await client_.session_.run(call);
        if (!ran) {
            if (!first)
                co_return ran.error();
            const bool again = co_await mended(args.stateid, ran.error());
            if (!again)
                co_return told(ran.error());
            continue;
        }
        const WRITE4res& res = call.get<1>();
        if (res.count > args.data.length || (res.count == 0 && args.data.length != 0))
            co_return error(std::errc::protocol_error, "WRITE tells an impossible count", res.count);
        changing.reached(res.count == 0 ? 0 : offset + res.count);
        write_result out;
        out.count = res.count;
        out.committed = static_cast<v3::stable_how>(res.committed);
        out.verifier = res.writeverf;
        co_return out;
    }
}

task<result<v3::writeverf3>> file::sync()
{
    operations call(PUTFH4args{node_.handle.bytes()}, COMMIT4args());
    call.yields(few_results);
    auto ran = co_await client_.session_.run(call);
    if (!ran)
        co_return ran.error();
    co_return call.get<1>().writeverf;
}

} // namespace verbena::nfs::v4
