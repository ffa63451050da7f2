// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/nfs/server/v4/callback_paths.hpp>

#include <verbena/core/task/already_made.hpp>
#include <verbena/core/task/combine.hpp>
#include <verbena/protocols/nfs/wire/v4/callback.hpp>
#include <verbena/protocols/rpc/auth_sys.hpp>
#include <verbena/protocols/rpcstream/stream_client.hpp>

#include <algorithm>
#include <exception>
#include <new>
#include <span>
#include <utility>

namespace verbena::nfs::v4 {

namespace {

/// The head of a call, with AUTH_SYS.
constexpr std::size_t largest_null = 512;
// Callbacks' results are small.
constexpr std::size_t largest_reply = 4096;
// Programs that nobody assigns (5531 13.3): no service of the client's host is called by a number of the client's choice.
constexpr std::uint32_t first_transient = 0x40000000;
constexpr std::uint32_t last_transient = 0x5fffffff;
// Calls over one connection: as many as callback_sender makes at once for one client, and CB_NULL.
constexpr std::uint32_t most_calls = 8;

task<result<void>> call_null(rpc::client_transport* caller, const callback_place* place)
{
    const callback_identity identity = place->identity();
    rpc::call_header header;
    header.program = identity.program;
    header.version = callback_version;
    header.procedure = std::uint32_t(callback_procedure::cb_null);
    header.credential.flavor = identity.flavor;
    header.credential.body = std::span(identity.body).first(identity.body_size);
    lease block = co_await caller->acquire(largest_null);
    if (!block)
        co_return error(std::errc::not_enough_memory, "CB_NULL");
    rpc::request request(std::move(block), header);
    task<result<rpc::reply>> calling = caller->call(request);
    const result<rpc::reply> got = co_await calling;
    if (!got)
        co_return got.error();
    co_return result<void>();
}

} // namespace

// --- Where

std::optional<callback_place> callback_place::of(const SETCLIENTID4args& args, const rpc::principal& who,
                                                 std::string_view from)
{
    if (args.cb_program < first_transient || args.cb_program > last_transient)
        return std::nullopt;
    const auto said = parse_universal_address(args.cb_location.netid, args.cb_location.addr);
    if (!said)
        return std::nullopt;
    const auto own = at_home_of(*said, from);
    if (!own)
        return std::nullopt;
    callback_place out;
    out.program = args.cb_program;
    out.ident = args.callback_ident;
    out.address = *own;
    out.has_user = !who.is_anonymous();
    if (out.has_user) {
        out.uid = who.uid();
        out.gid = who.gid();
    }
    return out;
}

callback_identity callback_place::identity() const
{
    callback_identity out;
    out.program = program;
    if (!has_user)
        return out;
    rpc::auth_sys user;
    user.machine_name = "verbena";
    user.uid = uid;
    user.gid = gid;
    xdr::encoder to(out.body);
    encode(to, user);
    out.flavor = rpc::auth_flavor::sys;
    out.body_size = to.size();
    return out;
}

bool callback_place::is_same(const callback_place& other) const
{
    return program == other.program && ident == other.ident && address.over == other.address.over &&
           address.at.to_string() == other.address.at.to_string() && has_user == other.has_user &&
           uid == other.uid && gid == other.gid;
}

result<std::unique_ptr<rpc::client_transport>> stream_callback_connector::make(const universal_address& to)
{
    if (to.over != universal_address::transport::stream)
        return error(std::errc::protocol_not_supported, "calls to clients over RDMA");
    rpc::stream_client_options options;
    options.client.hard = false;
    options.client.timeout = callback_paths::patience;
    options.client.retries = 0;
    options.client.connect_timeout = callback_paths::patience;
    // One that breaks under a call is made again by callback_paths, which counts them.
    options.client.reconnects = false;
    options.client.max_calls = most_calls;
    options.max_reply = largest_reply;
    return rpc::make_stream_client(home_.reactor(), home_.buffers(), to.at.to_string(), options);
}

duration callback_paths::limit() const noexcept
{
    return std::min(duration(patience), state_.options().recall_time / 4);
}

duration callback_paths::wait_limit() const noexcept
{
    return std::min(duration(longest_wait), state_.options().recall_time / 8);
}

void callback_paths::set_callable(const callback_path& p, bool callable) noexcept
{
    // One that is gone gets none anyway.
    (void)state_.clients().set_callable(p.client, callable);
}

void callback_paths::set(files::client_id client, const std::optional<callback_place>& place)
{
    if (const auto known = find(client); known && place && known->place.is_same(*place)) {
        // Linux says it again whenever it hears CB_PATH_DOWN: that is worth a try, and no proof that it can be called.
        if (known->verdict_ == callback_path::verdict::down) {
            known->next_try_ = {};
            nudge(client);
        }
        return;
    }
    forget(client);
    if (!place || connector_ == nullptr)
        return;
    const auto made = std::make_shared<callback_path>(client, *place);
    made->peer_ = peer_group(place->address.at.address(), limits_.v6_prefix);
    const auto [of, is_new] = peers_.try_emplace(made->peer_);
    if (is_new)
        of->second.counted = now();
    paths_.emplace(client, made);
    ++of->second.paths;
    by_verdict_[std::size_t(made->verdict_)].add(1);
    nudge(client);
}

void callback_paths::forget(files::client_id client) noexcept
{
    const auto known = paths_.find(client);
    if (known == paths_.end())
        return;
    callback_path& p = *known->second;
    p.gone_ = true;
    by_verdict_[std::size_t(p.verdict_)].add(-1);
    p.close_link();
    p.changed_.set();
    set_callable(p, false);
    --peers_.find(p.peer_)->second.paths;
    paths_.erase(known);
}

std::shared_ptr<callback_path> callback_paths::find(files::client_id client) const
{
    const auto known = paths_.find(client);
    return known == paths_.end() ? nullptr : known->second;
}

bool callback_paths::is_down(files::client_id client) const
{
    const auto p = find(client);
    return !p || p->verdict_ == callback_path::verdict::down || is_starved(*p);
}

// --- Tries

void callback_paths::count_tries(peer_entry& of) const noexcept
{
    constexpr duration each = duration(std::chrono::seconds(1)) / tries_each_second;
    const auto more = (now() - of.counted) / each;
    of.counted += more * each;
    of.tries = more >= most_tries ? most_tries : std::min(most_tries, of.tries + static_cast<unsigned>(more));
}

// Unless one is ending already: whoever asks often is to have one place.
void callback_paths::end_idle_one(const std::string* of_peer) noexcept
{
    callback_path* idle = nullptr;
    for (const auto& p : links_) {
        if (of_peer != nullptr && p->peer_ != *of_peer)
            continue;
        if (p->link_ == callback_path::link_state::closing)
            return;
        if (idle == nullptr && p->link_ == callback_path::link_state::open && p->under_way_ == 0 &&
            p->waiting_ == 0)
            idle = p.get();
    }
    if (idle != nullptr)
        idle->close_link();
}

// A call over a path that is up needs a place, and nothing else. Of other paths nobody knows that they are good: their tries are counted, and have half
// of the places, so that they keep nobody from being recalled. Where all places are taken one may come free for who asks again.
bool callback_paths::may_connect(callback_path& p)
{
    if (connector_ == nullptr || tasks_ == nullptr || p.gone_ || p.link_ != callback_path::link_state::none ||
        now() < p.next_try_)
        return false;
    peer_entry& of = peers_.find(p.peer_)->second;
    const bool is_try = p.verdict_ != callback_path::verdict::up;
    if (is_try && trying_ >= (limits_.callback_connections + 1) / 2)
        return false;
    if (is_try && of.trying >= (limits_.callback_connections_per_peer + 1) / 2)
        return false;
    // Whoever changes ports and names as it likes is still one peer.
    count_tries(of);
    if (is_try && of.tries == 0)
        return false;
    if (of.links >= limits_.callback_connections_per_peer) {
        end_idle_one(&p.peer_);
        return false;
    }
    if (links_.size() >= limits_.callback_connections) {
        end_idle_one(nullptr);
        return false;
    }
    of.tries -= is_try;
    return true;
}

void callback_paths::nudge(files::client_id client)
{
    const auto p = find(client);
    if (p && (p->verdict_ != callback_path::verdict::up || is_starved(*p)) && may_connect(*p))
        start(p);
}

void callback_paths::start(const std::shared_ptr<callback_path>& p)
{
    links_.push_back(p);
    peer_entry& of = peers_.find(p->peer_)->second;
    ++of.links;
    connections.set(static_cast<std::int64_t>(links_.size()));
    p->link_ = callback_path::link_state::opening;
    p->over_.reset();
    if (p->verdict_ != callback_path::verdict::up) {
        p->is_tried_ = true;
        ++of.trying;
        ++trying_;
        tries.add();
    }
    try {
        tasks_->spawn(already_made, serve(p));
    } catch (const std::bad_alloc&) {
        failures.add(p->is_tried_);
        note_down(*p);
        give_place_back(*p);
    }
}

void callback_paths::end_try(callback_path& p) noexcept
{
    if (!std::exchange(p.is_tried_, false))
        return;
    --trying_;
    --peers_.find(p.peer_)->second.trying;
}

void callback_paths::give_place_back(callback_path& p) noexcept
{
    p.link_ = callback_path::link_state::none;
    end_try(p);
    --peers_.find(p.peer_)->second.links;
    links_.remove_if([&p](const auto& each) { return each.get() == &p; });
    connections.set(static_cast<std::int64_t>(links_.size()));
    p.changed_.set();
}

task<void> callback_paths::serve(std::shared_ptr<callback_path> p)
{
    const bool is_try = p->is_tried_;
    bool is_open = false;
    try {
        task<result<void>> opening = open_unless_over(p.get());
        const result<void> opened = co_await opening;
        is_open = opened.has_value();
    } catch (const std::exception&) {
        // As any other failure.
    }
    if (p->gone_) {
        // Whatever came of it.
    } else if (is_open) {
        p->link_ = callback_path::link_state::open;
        note_open(*p);
        state_.home().reactor().timers().arm(p->idle_, now() + idle_time);
        p->changed_.set();
        (void)co_await p->over_.wait();
        p->idle_.cancel();
    } else {
        failures.add(is_try);
        note_down(*p);
    }
    p->link_ = callback_path::link_state::closing;
    if (p->caller_) {
        co_await p->caller_->close();
        // Whoever said begin() may not have got to his call yet; it fails at once.
        while (p->under_way_ != 0) {
            p->unused_.reset();
            co_await p->unused_.wait_shielded();
        }
        p->caller_.reset();
    }
    give_place_back(*p);
}

namespace {

task<result<void>> until_set(event* over)
{
    (void)co_await over->wait();
    co_return error(std::errc::operation_canceled);
}

} // namespace

// A place that is given up meanwhile gives its connection back at once.
task<result<void>> callback_paths::open_unless_over(callback_path* p)
{
    task<result<void>> opening = open(p);
    task<result<void>> in_time = with_timeout(limit(), std::move(opening));
    task<result<void>> over = until_set(&p->over_);
    task<first_of<result<void>>> either = when_any(std::move(in_time), std::move(over));
    const first_of<result<void>> first = co_await either;
    co_return first.value;
}

// Of one that is known to be good CB_NULL would tell no more than the call that is to come.
task<result<void>> callback_paths::open(callback_path* p)
{
    auto made = connector_->make(p->place.address);
    if (!made)
        co_return made.error();
    p->caller_ = std::move(*made);
    const result<void> connected = co_await p->caller_->connect();
    if (!connected || p->verdict_ == callback_path::verdict::up)
        co_return connected;
    task<result<void>> asking = call_null(p->caller_.get(), &p->place);
    co_return co_await asking;
}

task<result<void>> callback_paths::wait_settled(std::shared_ptr<callback_path> p)
{
    while (p->verdict_ == callback_path::verdict::unknown && p->link_ == callback_path::link_state::opening) {
        p->changed_.reset();
        const bool goes_on = co_await p->changed_.wait();
        if (!goes_on)
            co_return error(std::errc::operation_canceled);
    }
    co_return result<void>();
}

task<void> callback_paths::settle(files::client_id client, duration most)
{
    nudge(client);
    const auto p = find(client);
    if (!p)
        co_return;
    task<result<void>> waiting = wait_settled(p);
    (void)co_await with_timeout(most, std::move(waiting));
}

// --- Calls

task<result<void>> callback_paths::wait_changed(std::shared_ptr<callback_path> p)
{
    struct waiting {
        explicit waiting(callback_path& of) noexcept : path(of) { ++path.waiting_; }
        waiting(const waiting&) = delete;
        ~waiting() { --path.waiting_; }
        callback_path& path;
    };
    const waiting waits(*p);
    p->changed_.reset();
    const bool goes_on = co_await p->changed_.wait();
    if (!goes_on)
        co_return error(std::errc::operation_canceled);
    co_return result<void>();
}

// Whoever has no place is not to find that out when its delegation is revoked.
bool callback_paths::is_starved(const callback_path& p) const noexcept
{
    return p.waits_since_ && *p.waited_ - *p.waits_since_ >= wait_limit();
}

void callback_paths::note_wait(callback_path& p) noexcept
{
    if (!p.waited_ || now() - *p.waited_ > longest_wait) // the last one was another call's
        p.waits_since_ = now();
    p.waited_ = now();
    if (is_starved(p))
        set_callable(p, false);
}

task<bool> callback_paths::begin(std::shared_ptr<callback_path> p, time_point until)
{
    while (!p->gone_) {
        if (p->link_ == callback_path::link_state::open) {
            ++p->under_way_;
            p->idle_.cancel();
            co_return true;
        }
        if (p->link_ == callback_path::link_state::none) {
            if (!may_connect(*p)) {
                note_wait(*p);
                co_return false;
            }
            start(p);
            continue;
        }
        if (now() >= until)
            co_return false;
        task<result<void>> waiting = wait_changed(p);
        const result<void> changed = co_await with_timeout(until - now(), std::move(waiting));
        if (!changed)
            co_return false;
    }
    co_return false;
}

void callback_paths::end(callback_path& p) noexcept
{
    if (--p.under_way_ != 0)
        return;
    p.unused_.set();
    if (p.link_ == callback_path::link_state::open)
        state_.home().reactor().timers().arm(p.idle_, now() + idle_time);
}

void callback_paths::set_verdict(callback_path& p, callback_path::verdict v) noexcept
{
    by_verdict_[std::size_t(p.verdict_)].add(-1);
    by_verdict_[std::size_t(v)].add(1);
    p.verdict_ = v;
}

// The connection is there, and CB_NULL was answered where the path was not up. Of who answers that and no recall that is no proof: the recall itself is.
void callback_paths::note_open(callback_path& p) noexcept
{
    p.waits_since_.reset();
    p.waited_.reset();
    if (p.owes_answer_ && state_.clients().is_recalled(p.client))
        return;
    set_verdict(p, callback_path::verdict::up);
    end_try(p);
    if (!p.owes_answer_)
        p.failures_ = 0;
    p.next_try_ = {};
    set_callable(p, true);
}

void callback_paths::note_answer(callback_path& p) noexcept
{
    p.owes_answer_ = false;
    if (!p.gone_)
        note_open(p);
}

void callback_paths::note_down(callback_path& p) noexcept
{
    set_verdict(p, callback_path::verdict::down);
    const unsigned doublings = std::min(p.failures_++, 16u);
    p.next_try_ = now() + std::min(first_pause * (1u << doublings), duration(last_pause));
    set_callable(p, false);
}

// Of several calls that one connection takes along, one counts.
void callback_paths::note_failure(callback_path& p) noexcept
{
    if (p.gone_ || p.link_ != callback_path::link_state::open)
        return;
    p.owes_answer_ = true;
    note_down(p);
    p.close_link();
}

// --- The task

task<void> callback_paths::run()
{
    const task_context& context = co_await current_context();
    scope tasks(*context.shard, &context, nullptr, "connections to clients");
    tasks_ = &tasks;
    for (const auto& [client, p] : paths_)
        nudge(client);
    event never;
    (void)co_await never.wait();
    tasks_ = nullptr;
    tasks.request_stop();
    co_await tasks.join();
}

void callback_paths::tidy()
{
    for (auto at = peers_.begin(); at != peers_.end();) {
        count_tries(at->second);
        const bool is_over = at->second.paths == 0 && at->second.links == 0 && at->second.tries == most_tries;
        at = is_over ? peers_.erase(at) : std::next(at);
    }
}

} // namespace verbena::nfs::v4
