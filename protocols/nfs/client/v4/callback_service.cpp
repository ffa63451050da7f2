// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/nfs/client/v4/callback_service.hpp>

#include <verbena/protocols/rpc/dispatcher.hpp>

#include <algorithm>
#include <cstring>
#include <functional>
#include <string_view>
#include <vector>

namespace verbena::nfs::v4 {
namespace {

std::uint64_t digest_of(std::span<const std::byte> bytes) noexcept
{
    return std::hash<std::string_view>()(
        std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

/// One CB_COMPOUND.
class callback {
public:
    callback(std::span<called_session* const> sessions, callback_service::counters& counts,
             rpc::call& c) noexcept
        : sessions_(sessions), counts_(counts), call_(c), digest_(digest_of(c.args().rest())), args_(c.args())
    {
    }
    bool ok() const noexcept { return args_.ok(); }
    void run();

private:
    nfsstat4 sequence(CB_SEQUENCE4args& args);
    called_session* find(const sessionid4& id) const noexcept;
    bool refers_to_what_is_under_way(const CB_SEQUENCE4args& args) const;
    bool run_next(callback_results& out);
    nfsstat4 serve(nfs_cb_opnum4 operation);
    template<class Args>
    nfsstat4 recall();
    bool tell(callback_results& out);

    std::span<called_session* const> sessions_;
    callback_service::counters& counts_;
    rpc::call& call_;
    const std::uint64_t digest_; // of all arguments
    callback_arguments args_;
    called_session* session_ = nullptr;
    bool repeated_ = false;
};

called_session* callback::find(const sessionid4& id) const noexcept
{
    const auto found =
        std::ranges::find_if(sessions_, [&](const called_session* s) { return s->is_session(id); });
    return found == sessions_.end() ? nullptr : *found;
}

// 8881 2.10.6.3: the server sent this when it had answered those, and it makes sense only to who has heard that.
bool callback::refers_to_what_is_under_way(const CB_SEQUENCE4args& args) const
{
    for (const referring_call_list4& list : args.referring_call_lists) {
        const called_session* const of = find(list.sessionid);
        if (of == nullptr)
            continue;
        for (const referring_call4& each : list.referring_calls) {
            if (of->awaits_answer(each))
                return true;
        }
    }
    return false;
}

// An error leaves the slot as it is.
nfsstat4 callback::sequence(CB_SEQUENCE4args& args)
{
    if (!args_.read(args))
        return nfsstat4::badxdr;
    session_ = find(args.sessionid);
    if (session_ == nullptr) {
        const bool early =
            std::ranges::any_of(sessions_, [](const called_session* s) { return s->is_being_made(); });
        return early ? nfsstat4::delay : nfsstat4::badsession;
    }
    if (session_->minor_of_callbacks() != args_.head().minorversion)
        return nfsstat4::badsession;
    if (args_.head().operations > callback_service::max_operations)
        return nfsstat4::too_many_ops;
    const nfsstat4 status = session_->slots_of_callbacks().look(args, digest_, repeated_);
    if (status == nfsstat4::ok && !repeated_ && refers_to_what_is_under_way(args))
        return nfsstat4::delay;
    return status;
}

void callback::run()
{
    const std::size_t begin = call_.results().size();
    const std::uint32_t minor = args_.head().minorversion;
    const auto refuse = [&](nfs_cb_opnum4 operation, nfsstat4 status) {
        counts_.refused.add();
        callback_results out(call_.results(), args_.head().tag, callback_slots::max_kept);
        if (operation == nfs_cb_opnum4{})
            out.refuse(status);
        else
            out.fail(operation, status);
    };
    if (minor < 1 || minor > max_minor_version)
        return refuse({}, nfsstat4::minor_vers_mismatch);
    if (!args_.next()) {
        callback_results nothing(call_.results(), args_.head().tag);
        return;
    }
    if (!is_operation(args_.opcode(), minor))
        return refuse(nfs_cb_opnum4::illegal, nfsstat4::op_illegal);
    if (args_.opcode() != nfs_cb_opnum4::sequence)
        return refuse(args_.opcode(), nfsstat4::op_not_in_session);
    CB_SEQUENCE4args first;
    const nfsstat4 status = sequence(first);
    if (status != nfsstat4::ok)
        return refuse(nfs_cb_opnum4::sequence, status);
    callback_slots& slots = session_->slots_of_callbacks();
    if (repeated_) {
        counts_.repeats.add();
        call_.results().opaque_fixed(slots.kept(first.slotid));
        return;
    }
    slots.begin(first, digest_);
    callback_results out(call_.results(), args_.head().tag, callback_slots::max_kept);
    CB_SEQUENCE4res res;
    res.sessionid = first.sessionid;
    res.sequenceid = first.sequenceid;
    res.slotid = first.slotid;
    res.highest_slotid = res.target_highest_slotid = static_cast<std::uint32_t>(slots.size() - 1);
    if (out.add(res)) {
        while (args_.next() && run_next(out)) {
        }
    }
    slots.keep(first.slotid, call_.results().bytes().subspan(begin));
}

// False behind the last one, and behind one that failed.
bool callback::run_next(callback_results& out)
{
    const nfs_cb_opnum4 operation = args_.opcode();
    if (!is_operation(operation, args_.head().minorversion)) {
        out.fail(nfs_cb_opnum4::illegal, nfsstat4::op_illegal);
        return false;
    }
    if (operation == nfs_cb_opnum4::getattr)
        return tell(out);
    const nfsstat4 status = serve(operation);
    // All that are served have results of a status alone.
    if (status != nfsstat4::ok) {
        out.fail(operation, status);
        return false;
    }
    (void)out.begin(operation);
    if (!out.end()) {
        out.fail(operation, nfsstat4::rep_too_big);
        return false;
    }
    return true;
}

template<class Args>
nfsstat4 callback::recall()
{
    Args args;
    if (!args_.read(args))
        return nfsstat4::badxdr;
    if constexpr (Args::opcode != nfs_cb_opnum4::recall_slot)
        counts_.recalls.add();
    if constexpr (Args::opcode == nfs_cb_opnum4::layoutrecall)
        return session_->layout_recalled(args);
    else
        return session_->recalled(args);
}

nfsstat4 callback::serve(nfs_cb_opnum4 operation)
{
    switch (operation) {
    case nfs_cb_opnum4::sequence: return nfsstat4::sequence_pos;
    case nfs_cb_opnum4::recall: return recall<CB_RECALL4args>();
    case nfs_cb_opnum4::recall_any: return recall<CB_RECALL_ANY4args>();
    case nfs_cb_opnum4::recall_slot: return recall<CB_RECALL_SLOT4args>();
    case nfs_cb_opnum4::layoutrecall: return recall<CB_LAYOUTRECALL4args>();
    case nfs_cb_opnum4::notify_lock: {
        CB_NOTIFY_LOCK4args args;
        if (!args_.read(args))
            return nfsstat4::badxdr;
        session_->notified(args);
        return nfsstat4::ok;
    }
    default: {
        const bool good = args_.visit([](const auto&) {});
        return good ? nfsstat4::notsupp : nfsstat4::badxdr;
    }
    }
}

bool callback::tell(callback_results& out)
{
    CB_GETATTR4args args;
    if (!args_.read(args)) {
        out.fail(nfs_cb_opnum4::getattr, nfsstat4::badxdr);
        return false;
    }
    attributes values;
    const nfsstat4 status = session_->tell(args, values);
    if (status != nfsstat4::ok) {
        out.fail(nfs_cb_opnum4::getattr, status);
        return false;
    }
    encode_attributes(out.begin(nfs_cb_opnum4::getattr), args.attr_request, values);
    if (!out.end()) {
        out.fail(nfs_cb_opnum4::getattr, nfsstat4::rep_too_big);
        return false;
    }
    return true;
}

} // namespace

struct callback_service::programs final : rpc::program {
    programs(reactor& shard, counters& c) : counts(c), calls(shard) { calls.add(*this); }

    std::uint32_t number() const noexcept override { return callback_service::program; }
    std::uint32_t low_version() const noexcept override { return callback_version; }
    std::uint32_t high_version() const noexcept override { return callback_version; }
    std::string_view name() const noexcept override { return "nfs4_callback"; }
    std::string_view procedure_name(std::uint32_t, std::uint32_t procedure) const noexcept override
    {
        switch (static_cast<callback_procedure>(procedure)) {
        case callback_procedure::cb_null: return "CB_NULL";
        case callback_procedure::cb_compound: return "CB_COMPOUND";
        }
        return {};
    }
    // Slots know repeats.
    bool non_idempotent(std::uint32_t, std::uint32_t) const noexcept override { return false; }
    task<rpc::outcome> serve(rpc::call& c) override
    {
        switch (static_cast<callback_procedure>(c.header().procedure)) {
        case callback_procedure::cb_null: co_return rpc::outcome::success;
        case callback_procedure::cb_compound: break;
        default: co_return rpc::outcome::proc_unavail;
        }
        counts.callbacks.add();
        const bool room = co_await c.reserve_results(callback_slots::max_kept);
        if (!room)
            co_return rpc::outcome::system_error;
        callback one(sessions, counts, c);
        if (!one.ok())
            co_return rpc::outcome::garbage_args;
        one.run();
        co_return rpc::outcome::success;
    }

    counters& counts;
    rpc::service_dispatcher calls;
    std::vector<called_session*> sessions;
};

callback_service::callback_service(reactor& shard) : programs_(std::make_unique<programs>(shard, counts_)) {}

callback_service::~callback_service() = default;

task<bool> callback_service::dispatch(rpc::call& c) { return programs_->calls.dispatch(c); }

void callback_service::add(called_session& s) { programs_->sessions.push_back(&s); }

void callback_service::remove(called_session& s) noexcept { std::erase(programs_->sessions, &s); }

} // namespace verbena::nfs::v4
