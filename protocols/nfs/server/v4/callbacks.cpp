// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/nfs/server/v4/callbacks.hpp>
#include <verbena/protocols/nfs/server/v4/commons.hpp>
#include <verbena/protocols/nfs/server/v4/pnfs/service.hpp>

#include <verbena/core/log.hpp>
#include <verbena/core/printable.hpp>
#include <verbena/core/task/already_made.hpp>
#include <verbena/core/task/combine.hpp>
#include <verbena/core/task/exception.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/core/task/sleep.hpp>
#include <verbena/core/task/yield.hpp>

#include <algorithm>
#include <new>
#include <optional>

namespace verbena::nfs::v4 {

namespace {

/// The head of the call, with AUTH_SYS, and two operations.
constexpr std::size_t largest_callback = 2048;
// Of one client at once.
constexpr std::size_t most_workers = 4;
// Likewise, of free locks that it has not heard of: a client makes as many as it likes, and need not answer.
constexpr std::size_t most_locks_waiting = 1024;
// Between two tries, doubling.
constexpr duration first_delay = std::chrono::milliseconds(20);
constexpr duration last_delay = std::chrono::seconds(2);
// How often one call's slot may turn out to be in another state than we thought.
constexpr int most_slot_repairs = 4;
// Where there was no memory to call a client.
constexpr duration pause_without_memory = std::chrono::seconds(1);

} // namespace

/// One CB_COMPOUND; borrowed by the task that sends it, on the connection's shard.
struct detail::callback_message {
    callback_identity identity;
    std::uint32_t minor = 1;
    std::uint32_t ident = 0; // of minor version 0
    std::size_t most = largest_callback;
    CB_SEQUENCE4args sequence; // of the others
    callback_counters::kind what = callback_counters::kind::recall;
    CB_RECALL4args recall; // this or one of the next ones
    CB_RECALL_ANY4args recall_any;
    CB_NOTIFY_LOCK4args notify_lock;
    CB_GETATTR4args getattr;
    CB_LAYOUTRECALL4args layout;
};

namespace {

using message = detail::callback_message;

struct answer {
    nfsstat4 sequence = nfsstat4::ok;
    nfsstat4 operation = nfsstat4::ok; // if sequence is ok
    bool makes_sense = true;           // else `operation` is badxdr
    held_attributes held;              // of CB_GETATTR, if that is ok
};

void read_status(callback_reply& reply, callback_counters::kind what, answer& out)
{
    // What is not there at all is not ok.
    const auto failure = [](nfsstat4 status) { return status != nfsstat4::ok ? status : nfsstat4::badxdr; };
    const auto alone = [&](auto res) {
        out.operation = reply.read(res) ? nfsstat4::ok : failure(res.status);
    };
    switch (what) {
    case callback_counters::kind::recall: return alone(CB_RECALL4res());
    case callback_counters::kind::recall_any: return alone(CB_RECALL_ANY4res());
    case callback_counters::kind::notify_lock: return alone(CB_NOTIFY_LOCK4res());
    case callback_counters::kind::layout_recall: return alone(CB_LAYOUTRECALL4res());
    case callback_counters::kind::getattr: break;
    }
    CB_GETATTR4res res;
    if (!reply.read(res)) {
        out.operation = failure(res.status);
        return;
    }
    attributes values;
    if (!decode_attributes(res.obj_attributes, values) || !values.present.test(attribute::change) ||
        !values.present.test(attribute::size))
        out.operation = nfsstat4::badxdr; // no answer to what was asked
    out.held = {values.change, values.size};
}

// Over a session's back channel, or over a connection of our own.
template<class Way>
task<result<answer>> send(Way* way, const message* m)
{
    rpc::call_header header;
    header.program = m->identity.program;
    header.version = callback_version;
    header.procedure = std::uint32_t(callback_procedure::cb_compound);
    header.credential.flavor = m->identity.flavor;
    header.credential.body = std::span(m->identity.body).first(m->identity.body_size);
    lease block = co_await way->acquire(largest_callback);
    if (!block)
        co_return error(std::errc::not_enough_memory, "a call to a client");
    rpc::request request(std::move(block), header);
    callback_head head;
    head.minorversion = m->minor;
    head.callback_ident = m->ident;
    callback_request out(request.message(), head);
    if (m->minor != 0)
        out.add(m->sequence);
    switch (m->what) {
    case callback_counters::kind::recall: out.add(m->recall); break;
    case callback_counters::kind::recall_any: out.add(m->recall_any); break;
    case callback_counters::kind::notify_lock: out.add(m->notify_lock); break;
    case callback_counters::kind::getattr: out.add(m->getattr); break;
    case callback_counters::kind::layout_recall: out.add(m->layout); break;
    }
    if (!request.message().ok() || request.message().position() > m->most)
        co_return error(std::errc::message_size, "a call exceeds the back channel's limit");
    task<result<rpc::reply>> calling = way->call(request);
    result<rpc::reply> got = co_await calling;
    if (!got)
        co_return got.error();
    xdr::decoder& in = got->results();
    callback_reply reply(in);
    answer a;
    CB_SEQUENCE4res sequence;
    if (m->minor != 0 && !reply.read(sequence)) {
        a.sequence = sequence.status != nfsstat4::ok ? sequence.status : reply.status();
        if (!in.ok() || a.sequence == nfsstat4::ok)
            co_return error(std::errc::protocol_error, "a client's answer to a callback");
        co_return a;
    }
    read_status(reply, m->what, a);
    if (!in.ok() || (a.operation == nfsstat4::ok && (reply.status() != nfsstat4::ok || !reply.complete()))) {
        a.operation = nfsstat4::badxdr;
        a.makes_sense = false;
    }
    co_return a;
}

} // namespace

/// What is called of the client by its notice; `handle` has the bytes of its file as long as `m` is used.
bool callback_sender::write_down(const notice& n, clientid4 client, file_handle& handle,
                                 detail::callback_message& m) const
{
    m.what = n.what;
    if (n.what == kind::recall_any) {
        m.recall_any.objects_to_keep = static_cast<std::uint32_t>(n.keep);
        if (n.of_layouts) {
            m.recall_any.type_mask.set(rca4_type::other_layout_min);
        } else {
            m.recall_any.type_mask.set(rca4_type::rdata_dlg);
            m.recall_any.type_mask.set(rca4_type::wdata_dlg);
        }
        return true;
    }
    const auto signed_one = sign_state_file(commons_.key, n.file);
    if (!signed_one)
        return false;
    handle = *signed_one;
    m.recall.stateid = m.layout.recall.stateid = to_wire(n.id);
    m.recall.fh = m.notify_lock.fh = m.getattr.fh = m.layout.recall.fh = handle.bytes();
    m.layout.type = layouttype4::rdma;
    m.layout.recall.recalltype = layoutrecall_type4::file;
    m.layout.recall.length = files::byte_range::to_the_end;
    m.notify_lock.lock_owner.clientid = client;
    m.notify_lock.lock_owner.owner = std::as_bytes(std::span(n.owner));
    m.getattr.attr_request = {attribute::change, attribute::size};
    return true;
}

/// What a client is asked, for all who want to know it.
struct callback_sender::question final : timer {
    void on_timer() noexcept override { over.set(); }
    bool is_open() const noexcept { return waiting > 0 && !over.is_set(); }

    event over; // there is an answer, or there will be none
    time_point until{};
    std::optional<held_attributes> answer;
    std::size_t waiting = 0;
};

/// A notice on its way from a file's home. It owns itself.
class callback_sender::letter final : public remote_message {
public:
    letter(callback_sender& s, notice&& n) noexcept : to_(s), told_(std::move(n)) {}
    void deliver() noexcept override
    {
        to_.note(std::move(told_));
        delete this;
    }

private:
    callback_sender& to_;
    notice told_;
};

// On whichever home. Notices of one home come there in their order.
void callback_sender::tell(notice n) noexcept
{
    reactor& home = commons_.state.home().reactor();
    if (home.is_here())
        return note(std::move(n));
    if (auto* const sent = new (std::nothrow) letter(*this, std::move(n)))
        home.post_remote(*sent);
    else
        counters_.lost_elsewhere.fetch_add(1, std::memory_order_relaxed);
}

void callback_sender::note(notice n) noexcept
{
    try {
        told_.push_back(std::move(n));
        counters_.waiting.add(1);
        news_.set();
    } catch (const std::bad_alloc&) {
        counters_.lost.add();
    }
}

void callback_sender::recall(const files::recall_notice& n) noexcept
{
    notice told(n.client, kind::recall);
    told.id = n.id;
    told.file = {*n.file, n.via};
    tell(std::move(told));
}

void callback_sender::recall_layout(const files::recall_notice& n) noexcept
{
    notice told(n.client, kind::layout_recall);
    told.id = n.id;
    told.file = {*n.file, n.via};
    tell(std::move(told));
}

time_point callback_sender::last_heard(files::client_id client) noexcept
{
    return commons_.sessions.last_heard(client);
}

void callback_sender::lost(const files::loss_notice& n) noexcept
{
    try {
        std::string address = commons_.sessions.address_of(n.client);
        if (address.empty())
            address = commons_.v40.address_of(n.client);
        log_limited(
            losses_logged_, log_level::warning, "nfs",
            "a client lost what it had: its lease was over, and somebody else needed it or the room; its "
            "programs hear of errors should it come back",
            {{"name", printable(n.key)},
             {"client", address.empty() ? "unknown" : address},
             {"opens", n.opens},
             {"locks", n.locks},
             {"delegations", n.delegations},
             {"silent_seconds", std::chrono::duration_cast<std::chrono::seconds>(n.silent).count()}});
    } catch (const std::bad_alloc&) { // the count tells it
    }
}

std::unique_ptr<storage::local_locks> callback_sender::local_locks_of(const storage::handle& file)
{
    const auto named = files::open_file_key(file);
    if (!named)
        return nullptr;
    // One back end locks for all exports of a tree: two would stand in each other's way. That of an export that is read
    // only may stand on a mount that is, where nothing can be locked for writers.
    for (const bool read_only : {false, true})
        for (const auto& [space, each] : commons_.exports.of_space(named->space))
            if (each->read_only == read_only)
                if (auto locks = each->backend->local_locks_of(named->file))
                    return locks;
    return nullptr;
}

void callback_sender::recall_any(files::client_id client, std::size_t keep) noexcept
{
    notice told(client, kind::recall_any);
    told.keep = keep;
    tell(std::move(told));
}

void callback_sender::recall_any_layout(files::client_id client, std::size_t keep) noexcept
{
    notice told(client, kind::recall_any);
    told.keep = keep;
    told.of_layouts = true;
    tell(std::move(told));
}

void callback_sender::lock_available(const files::lock_notice& n) noexcept
{
    notice told(n.client, kind::notify_lock);
    told.file = {*n.file, n.via};
    try {
        told.owner.assign(reinterpret_cast<const char*>(n.owner.data()), n.owner.size());
    } catch (const std::bad_alloc&) {
        counters_.lost_elsewhere.fetch_add(1, std::memory_order_relaxed);
        return;
    }
    tell(std::move(told));
}

task<result<held_attributes>> callback_sender::ask(files::client_id holder, const files::stateid& id,
                                                   const files::exported_file& file, duration patience)
{
    const auto known = questions_.find(id.other);
    std::shared_ptr<question> q = known == questions_.end() ? nullptr : known->second;
    if (!q || q->over.is_set()) {
        q = std::make_shared<question>();
        const task_context& context = co_await current_context();
        q->until = context.shard->now() + patience;
        context.shard->timers().arm(*q, q->until);
        questions_.insert_or_assign(id.other,
                                    q); // where there was no memory for this, nobody else waits for it
        notice told(holder, kind::getattr);
        told.id = id;
        told.file = file;
        told.asked = q;
        note(std::move(told));
    }
    ++q->waiting;
    const bool goes_on = co_await q->over.wait("the attributes that the holder of a delegation knows");
    --q->waiting;
    if (const auto asked = questions_.find(id.other);
        asked != questions_.end() && asked->second == q && (q->waiting == 0 || q->over.is_set()))
        questions_.erase(asked);
    if (!goes_on)
        co_return error(std::errc::operation_canceled);
    if (!q->answer)
        co_return error(std::errc::timed_out, "a client's answer to CB_GETATTR");
    co_return *q->answer;
}

task<void> callback_sender::run()
{
    const task_context& context = co_await current_context();
    exception_logger lost("nfs");
    scope workers(*context.shard, &context, &lost, "calls to clients");
    workers.spawn(already_made, commons_.v40.paths().run());
    // From here on there are children, and nothing may leave this but by their end.
    for (bool lacks_memory = false;;) {
        news_.reset();
        try {
            if (lacks_memory)
                serve_those_without_workers(workers);
            line_up_all(workers);
            lacks_memory = false;
        } catch (const std::bad_alloc&) {
            lacks_memory = true;
        }
        bool goes_on = true;
        try {
            if (lacks_memory) {
                co_await yield(); // if there is no memory to sleep either
                goes_on = co_await sleep_for(pause_without_memory);
            } else {
                goes_on = co_await news_.wait();
            }
        } catch (const std::bad_alloc&) { // no memory to sleep
        }
        if (!goes_on || context.stop.stop_requested())
            break;
    }
    workers.request_stop();
    co_await workers.join();
}

void callback_sender::line_up_all(scope& workers)
{
    while (!told_.empty()) {
        const files::client_id client = told_.front().client;
        line& l = lines_[client];
        const bool is_new = line_up(l, std::move(told_.front())); // if there is memory for it
        told_.pop_front();
        if (!is_new)
            counters_.waiting.add(-1);
        else if (l.workers < most_workers)
            start_worker(workers, client, l);
    }
}

void callback_sender::start_worker(scope& workers, files::client_id client, line& l)
{
    task<void> serving = serve(client);
    ++l.workers; // as it may end at once
    try {
        workers.spawn(already_made, std::move(serving));
    } catch (...) {
        --l.workers;
        throw;
    }
}

void callback_sender::serve_those_without_workers(scope& workers)
{
    std::vector<files::client_id> all; // a worker that ends at once takes its line along
    for (const auto& [client, l] : lines_) {
        if (l.workers == 0)
            all.push_back(client);
    }
    for (const files::client_id client : all)
        start_worker(workers, client, lines_.find(client)->second);
}

// False where it need not be told. Of free locks no more wait than a client should have: else one that does not answer fills our memory.
bool callback_sender::line_up(line& l, notice&& n)
{
    if (n.what == kind::notify_lock) {
        const auto says_so = [&n](const notice& other) {
            return other.what == n.what && other.owner == n.owner && other.file.key == n.file.key &&
                   other.file.via == n.file.via;
        };
        if (std::ranges::any_of(l.waiting, says_so)) // and looks then how it is
            return false;
        if (l.locks >= most_locks_waiting) {
            counters_.lost.add();
            return false;
        }
    }
    const bool is_lock = n.what == kind::notify_lock;
    l.waiting.push_back(std::move(n));
    l.locks += is_lock;
    return true;
}

task<void> callback_sender::serve(files::client_id client)
{
    struct work {
        work(callback_sender& s, files::client_id c) noexcept : sender(s), of(c), l(s.lines_.find(c)->second)
        {
        }
        work(const work&) = delete;
        ~work()
        {
            if (--l.workers == 0 && l.waiting.empty())
                sender.lines_.erase(of);
        }
        callback_sender& sender;
        const files::client_id of;
        line& l;
    };
    const work here(*this, client);
    while (!here.l.waiting.empty()) {
        const notice n = std::move(here.l.waiting.front());
        here.l.waiting.pop_front();
        here.l.locks -= n.what == kind::notify_lock;
        counters_.waiting.add(-1);
        for (bool again = true; again;) {
            bool is_done = false;
            try {
                task<void> delivering = deliver(&n);
                co_await delivering;
                is_done = true;
            } catch (const std::bad_alloc&) {
            }
            if (is_done)
                break;
            again = n.what != kind::recall_any;
            try {
                if (again) {
                    task<use_of> asking = use_now(&n);
                    const use_of use = co_await asking;
                    again = use != use_of::none;
                }
            } catch (const std::bad_alloc&) { // nor is there any to ask: later
            }
            counters_.lost.add(!again);
            if (again)
                again = co_await sleep_for(pause_without_memory);
        }
    }
}

// One whose back channel is as it should be, if there is one.
std::shared_ptr<session> callback_sender::find_session(files::client_id client) const
{
    std::shared_ptr<session> chosen;
    for (std::shared_ptr<session>& s : commons_.sessions.of(client)) {
        if (!s->back().identity() || !s->back().find())
            continue;
        if (!chosen || (chosen->back().has_fault() && !s->back().has_fault()))
            chosen = std::move(s);
    }
    return chosen;
}

// Whether it is still of use: a delegation may have been returned meanwhile, or taken; a waiter may have come by itself.
// A client that lost a delegation with its export is told once, if it can be called.
callback_sender::use_of callback_sender::use_at(files::state_table& table, const notice& n) noexcept
{
    const auto use_if = [](bool is_of_use) { return is_of_use ? use_of::until_done : use_of::none; };
    if (n.what == kind::notify_lock)
        return use_if(table.is_told(n.client, n.file.key, std::as_bytes(std::span(n.owner))));
    if (n.what == kind::layout_recall) // what came back in part since has another number
        return use_if(table.test_stateid(n.client, {0, n.id.other}).has_value());
    if (n.what == kind::recall && table.has_lost(n.client, n.id))
        return use_of::until_heard;
    return use_if(table.test_stateid(n.client, n.id).has_value());
}

// On the home of what it is about, which it may have left again when this is answered: the client says so then.
task<callback_sender::use_of> callback_sender::use_now(const notice* n)
{
    if (n->what == kind::recall_any) // minor version 0 has none
        co_return commons_.v40.clients().knows(n->client) ? use_of::none : use_of::until_done;
    if (n->what == kind::getattr && !n->asked->is_open())
        co_return use_of::none;
    const auto ask = [n](files::state_table& t) -> result<use_of> { return use_at(t, *n); };
    result<use_of> use = use_of::none; // by a home that has stopped
    if (n->what == kind::notify_lock)
        use = co_await commons_.state.at_home_of(n->file.key, ask);
    else
        use = co_await commons_.state.at_home_of(n->id, ask);
    const bool is_late = n->what == kind::getattr && !n->asked->is_open();
    co_return use && !is_late ? *use : use_of::none;
}

// The client has forgotten it (8881 20.3.3). Whatever it has after all it can't use any more.
task<void> callback_sender::give_back_layout(const notice* n)
{
    const auto give_back = [this, n](files::state_table& table) -> result<void> {
        const auto done = commons_.pnfs.load()->layouts().give_back(table, n->client, n->id, n->file,
                                                                    {0, files::byte_range::to_the_end},
                                                                    std::nullopt, files::loss::forgotten);
        return done ? result<void>() : result<void>(done.error());
    };
    auto giving = commons_.state.at_home_of(n->id, give_back);
    (void)co_await giving;
}

duration callback_sender::patience_for(const notice& n) const
{
    const files::state_options& options = commons_.state.options();
    return n.what == kind::notify_lock ? options.lock_reserve : options.recall_time;
}

task<void> callback_sender::deliver(const notice* told)
{
    const notice& n = *told;
    // However it ends, nobody waits for an answer any more.
    struct question_ends {
        explicit question_ends(question* asked) noexcept : q(asked) {}
        question_ends(const question_ends&) = delete;
        ~question_ends()
        {
            if (q != nullptr)
                q->over.set();
        }
        question* q;
    };
    const question_ends ends(n.asked.get());
    const task_context& context = co_await current_context();
    const time_point end = context.shard->now() + patience_for(n);
    duration delay = first_delay;
    bool told_unreachable = false;
    while (context.shard->now() < end) {
        task<use_of> asking = use_now(told);
        const use_of use = co_await asking;
        if (use == use_of::none)
            co_return;
        outcome how = outcome::unreachable;
        if (commons_.v40.clients().knows(n.client)) {
            task<outcome> calling = call_v40(n);
            how = co_await calling;
        } else if (const std::shared_ptr<session> s = find_session(n.client)) {
            task<outcome> calling = call(*s, n);
            how = co_await calling;
        }
        if (how != outcome::unreachable || !std::exchange(told_unreachable, true))
            counters_.note(n.what, how);
        const bool is_heard = how == outcome::later || how == outcome::failed;
        if (how == outcome::ok || (is_heard && use == use_of::until_heard))
            co_return;
        // RENEW tells a client of minor version 0, and SEQUENCE all others.
        if (use == use_of::until_heard && !is_heard)
            commons_.v40.note_unheard_loss(n.client);
        // What it is about is gone, and recalls that somebody waits for may stand behind it.
        if (use == use_of::until_heard && how == outcome::unreachable)
            co_return;
        // Who can't answer at once is recalled, so that nobody waits for both.
        if (n.what == kind::getattr && how != outcome::later)
            co_return;
        if (how != outcome::unreachable)
            told_unreachable = false;
        const bool goes_on = co_await sleep_for(delay);
        if (!goes_on)
            co_return;
        delay = std::min(2 * delay, last_delay);
    }
}

task<callback_sender::outcome> callback_sender::call(session& s, const notice& n)
{
    back_channel& back = s.back();
    std::optional<std::uint32_t> slot;
    while (!(slot = back.take_slot())) {
        const bool goes_on = co_await back.freed.wait("a slot of the session's back channel");
        if (!goes_on)
            co_return outcome::unanswered;
    }
    // Given back on each way out.
    struct hold {
        hold(back_channel& b, std::uint32_t i) noexcept : channel(b), slot(i) {}
        hold(const hold&) = delete;
        ~hold() { channel.release_slot(slot); }
        back_channel& channel;
        const std::uint32_t slot;
    };
    const hold holds(back, *slot);
    back_channel::slot& state = back.at(*slot);
    file_handle handle;
    for (int repairs = 0; repairs < most_slot_repairs; ++repairs) {
        const std::optional<back_channel::way> way = back.find();
        const std::optional<callback_identity> identity = back.identity();
        if (!way || !identity)
            co_return outcome::unreachable;
        message m;
        m.identity = *identity;
        m.minor = back.minor();
        m.most = back.max_request();
        m.sequence.sessionid = s.id();
        m.sequence.sequenceid = state.sequence + 1;
        m.sequence.slotid = *slot;
        m.sequence.highest_slotid = back.slots() - 1;
        if (!write_down(n, s.client(), handle, m))
            co_return outcome::failed;
        rpc::reverse_channel* const channel = way->channel.get();
        const message* const text = &m;
        // Nobody waits for attributes any longer than for the question's time: others need the slot and the task.
        const task_context& context = co_await current_context();
        const duration left = n.asked ? n.asked->until - context.shard->now() : duration::max();
        if (left <= duration::zero())
            co_return outcome::unanswered;
        task<result<answer>> asking = way->at->run(&send<rpc::reverse_channel>, channel, text);
        if (n.asked)
            asking = with_timeout(left, std::move(asking));
        const result<answer> got = co_await asking;
        if (!got) {
            // Whether it came there is not known: its number is used again, and the client's answer will tell.
            state.in_doubt |=
                got.error() != std::errc::message_size && got.error() != std::errc::not_enough_memory;
            // The question's time is over, which says nothing of the way.
            if (n.asked && got.error() == std::errc::timed_out)
                co_return outcome::unanswered;
            if (got.error() == std::errc::protocol_error ||
                (got.error() == std::errc::message_size &&
                 (n.what == kind::recall || n.what == kind::layout_recall)) ||
                got.error() == std::errc::timed_out)
                back.set_fault(true);
            co_return outcome::unanswered;
        }
        switch (got->sequence) {
        case nfsstat4::ok: break;
        case nfsstat4::delay: co_return outcome::later;
        // The number was used by a call whose answer was lost.
        case nfsstat4::retry_uncached_rep:
        case nfsstat4::seq_false_retry:
            ++state.sequence;
            state.in_doubt = false;
            continue;
        case nfsstat4::seq_misordered:
            if (std::exchange(state.restarted, true)) {
                back.set_fault(true);
                co_return outcome::failed;
            }
            state.sequence = 0;
            state.in_doubt = false;
            continue;
        case nfsstat4::badslot:
        case nfsstat4::bad_high_slot:
            if (back.slots() == 1) {
                back.set_fault(true);
                co_return outcome::failed;
            }
            back.use_first_slot_only();
            co_return outcome::later;
        default: back.set_fault(true); co_return outcome::failed;
        }
        ++state.sequence;
        state.restarted = false;
        // What was kept of an earlier call with this number may be what came: it is asked again.
        if (std::exchange(state.in_doubt, false))
            continue;
        if (!got->makes_sense) {
            back.set_fault(true);
            co_return outcome::failed;
        }
        back.set_fault(false);
        switch (got->operation) {
        case nfsstat4::ok:
            if (n.asked)
                n.asked->answer = got->held;
            co_return outcome::ok;
        // A call with this number was answered before, be it this one.
        case nfsstat4::retry_uncached_rep: continue;
        // The client's OPEN may have no answer yet, so that it does not know what it holds.
        case nfsstat4::badhandle:
        case nfsstat4::bad_stateid:
        case nfsstat4::delay: co_return outcome::later;
        case nfsstat4::nomatching_layout: {
            if (n.what != kind::layout_recall)
                co_return outcome::failed;
            task<void> giving = give_back_layout(&n);
            co_await giving;
            co_return outcome::ok;
        }
        default: co_return outcome::failed;
        }
    }
    back.set_fault(true);
    co_return outcome::failed;
}

// Without slots: what comes there twice does no harm.
task<callback_sender::outcome> callback_sender::call_v40(const notice& n)
{
    callback_paths& paths = commons_.v40.paths();
    const std::shared_ptr<callback_path> path = paths.find(n.client);
    if (!path)
        co_return outcome::unreachable;
    const task_context& context = co_await current_context();
    // Others need the task. A recall has the time for a connection, and then for the call.
    const time_point until = n.asked ? n.asked->until : context.shard->now() + 2 * paths.limit();
    const bool is_there = co_await paths.begin(path, until);
    if (!is_there)
        co_return outcome::unreachable;
    struct use {
        use(callback_paths& of, callback_path& p) noexcept : paths(of), path(p) {}
        use(const use&) = delete;
        ~use() { paths.end(path); }
        callback_paths& paths;
        callback_path& path;
    };
    const use used(paths, *path);
    message m;
    file_handle handle;
    m.identity = path->place.identity();
    m.minor = 0;
    m.ident = path->place.ident;
    if (!write_down(n, 0, handle, m))
        co_return outcome::failed;
    const duration left = n.asked ? until - context.shard->now() : paths.limit();
    if (left <= duration::zero())
        co_return outcome::unanswered;
    const message* const text = &m;
    task<result<answer>> sending = send(&callback_paths::caller(*path), text);
    task<result<answer>> asking = with_timeout(left, std::move(sending));
    const result<answer> got = co_await asking;
    if (!got) {
        const bool is_ours = got.error() == std::errc::not_enough_memory;
        // The question's time is over, which says nothing of the way.
        const bool is_late = n.asked && got.error() == std::errc::timed_out;
        if (!is_ours && !is_late)
            paths.note_failure(*path);
        co_return outcome::unanswered;
    }
    if (!got->makes_sense) {
        paths.note_failure(*path);
        co_return outcome::failed;
    }
    paths.note_answer(*path);
    switch (got->operation) {
    case nfsstat4::ok:
        if (n.asked)
            n.asked->answer = got->held;
        co_return outcome::ok;
    // The client's OPEN may have no answer yet, so that it does not know what it holds.
    case nfsstat4::badhandle:
    case nfsstat4::bad_stateid:
    case nfsstat4::delay: co_return outcome::later;
    default: co_return outcome::failed;
    }
}

} // namespace verbena::nfs::v4
