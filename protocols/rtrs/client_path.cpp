// SPDX-License-Identifier: Apache-2.0
#include "client_path.hpp"

#include "client_connection.hpp"

#include <verbena/core/task/already_made.hpp>
#include <verbena/core/task/combine.hpp>
#include <verbena/core/task/exception.hpp>
#include <verbena/core/task/sleep.hpp>
#include <verbena/core/task/yield.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <exception>
#include <new>
#include <string>

namespace verbena::rtrs {

namespace {

// How long the other connections may stand when a server has ended one of them. It ends all of them at once, each on a shard of its own.
constexpr duration time_for_last_answers = std::chrono::seconds(1);

// is_answer() knows it by its place.
constexpr char servers_answer[] = "the server's answer";

} // namespace

bool is_answer(const error& e) noexcept { return e.context() == servers_answer; }

client_path::client_path(client_shared& shared, verbs::context& d, std::string address, first_failure then)
    : shared_(shared),
      device_(d),
      address_(std::move(address)),
      then_(then),
      counters_(shared.stats.by_path.join(shared.options.session, address_))
{
}

path_state client_path::state() const noexcept
{
    if (state_ == client_path_state::connected)
        return path_state::connected;
    if (closing() || state_ == client_path_state::closed)
        return path_state::closed;
    return first() ? path_state::connecting : path_state::reconnecting;
}

client_path::~client_path() { shared_.stats.by_path.leave(counters_); }

void client_path::close() noexcept
{
    closed_.set();
    connection_moved_.set();
    broken(path_end::closed, error(std::errc::operation_canceled, "the path was closed"));
}

// A server that ends in good order and one whose process is killed close their sockets alike.
void client_path::connection_ended(const error& cause) noexcept
{
    connection_moved_.set();
    if (cause != verbs::connection_end::orderly) {
        by_server_ = false;
        broken(path_end::lost, cause);
        return;
    }
    by_server_ |= state_ == client_path_state::connected;
    broken(path_end::lost,
           error(std::errc::connection_reset, "the RTRS server ended, was killed or gave the path up"));
}

void client_path::broken(path_end why, const error& cause) noexcept
{
    if (state_ == client_path_state::setting_up)
        state_.to(client_path_state::failed, text_of(why));
    else if (state_ == client_path_state::connected)
        state_.to(client_path_state::lost, text_of(why));
    else
        return; // the first reason counts
    why_ = why;
    cause_ = cause;
    down_.set();
    informed_.set();
    if (life_ != nullptr)
        life_->request_stop();
}

void client_path::leave_session() noexcept
{
    // The first attempt to connect goes on.
    at_once_ = first();
    broken(path_end::lost, error(std::errc::connection_aborted, "the session begins anew"));
}

// --- the path's life -------------------------------------------------------------------------------

namespace {

// As many of our host's paths as may be are on their way there. That passes.
bool is_crowded(const error& why) noexcept
{
    return why == std::errc::connection_refused && why.detail() == EAGAIN;
}

} // namespace

task<void> client_path::run()
{
    duration delay = shared_.options.reconnect_delay;
    const time_point patience = shared_.shard.clock().now() + shared_.options.set_up;
    for (;;) {
        down_.reset();
        by_server_ = false;
        ++lives_;
        at_once_ = false;
        scope life(shared_.shard);
        life_ = &life;
        try {
            if (!closing() && state_.to(client_path_state::setting_up, "a life begins"))
                life.spawn(already_made, live(life));
        } catch (...) {
            broken(path_end::refused, error_of(std::current_exception(), "a path could not begin"));
        }
        try {
            co_await life.join();
        } catch (...) {
            broken(path_end::lost, error_of(std::current_exception(), "an exception left a task of a path"));
        }
        life_ = nullptr;
        const bool was_up = state_ == client_path_state::lost;
        const bool never_up = first();
        if (was_up) {
            shared_.path_lost();
            delay = shared_.options.reconnect_delay;
            if (by_server_)
                co_await take_last_answers();
        }
        for (bool is_down = false; !is_down;) {
            try {
                co_await take_down(closing());
                is_down = true;
            } catch (const std::bad_alloc&) { // what it has done may be done again
            }
            if (is_down)
                break;
            co_await yield(); // if the client stops, or there is no memory to sleep either
            try {
                (void)co_await sleep_for(pause_without_memory);
            } catch (const std::bad_alloc&) {
            }
        }
        if (state_ != client_path_state::waiting)
            state_.to(client_path_state::waiting, "its connections are gone");
        shared_.path_moved.set();
        if (was_up && !closing()) {
            shared_.stats.lost_paths[std::size_t(why_)].add();
            log_loss();
        }
        const bool crowded = never_up && is_crowded(cause_) && shared_.shard.clock().now() + delay < patience;
        if (at_once_ && !closing())
            continue;
        if (never_up && !closing() && !crowded)
            attempt_->outcome = cause_;
        if ((never_up && !crowded && then_ == first_failure::is_the_end) || closing())
            break;
        if (!crowded) {
            attempt_->over.set();
            ++reconnects_;
        }
        const auto closed = [this]() -> task<result<void>> {
            co_await closed_.wait();
            co_return result<void>();
        };
        bool has_waited = false;
        try {
            (void)co_await with_timeout(delay, closed());
            has_waited = true;
        } catch (const std::bad_alloc&) {
        }
        if (!has_waited) {
            co_await yield();
            try {
                (void)co_await sleep_for(delay);
            } catch (const std::bad_alloc&) {
            }
        }
        delay = std::min(2 * delay, shared_.options.reconnect_delay_max);
    }
    state_.to(client_path_state::closed, closing() ? "close()" : "its first attempt was its only one");
    attempt_->over.set();
    // Requests have what they sent taken back before this goes.
    while (in_flight_ != 0) {
        idle_.reset();
        co_await idle_.wait_shielded();
    }
}

void client_path::log_loss() noexcept
{
    try {
        const auto patience = std::chrono::ceil<std::chrono::seconds>(shared_.options.patience).count();
        const std::string requests =
            shared_.connected_paths != 0
                ? "they go on by the other paths: " + std::to_string(shared_.connected_paths)
                : "they wait for a path, and fail after " + std::to_string(patience) + " s without one";
        log_limited(shared_.stats.paths_logged, log_level::warning, "rtrs", "path lost",
                    {{"server", address_},
                     {"reason", to_string(why_)},
                     {"cause", cause_.message()},
                     {"requests", requests}});
    } catch (const std::bad_alloc&) { // the count tells it
    }
}

// From one connect to the path's end, whatever brings that about.
task<void> client_path::live(scope& life)
{
    try {
        co_await come_up(life);
    } catch (...) { // else its other tasks would go on, and nobody would hear
        broken(path_end::lost, error_of(std::current_exception(), "an exception left a task of a path"));
    }
}

task<void> client_path::come_up(scope& life)
{
    life.spawn(already_made, limit_set_up());
    const auto up = co_await set_up();
    if (!up)
        broken(path_end::refused, up.error());
    if (state_ != client_path_state::setting_up)
        co_return;
    // It may have begun a session that the others, which came up meanwhile, are not of.
    if (began_ && shared_.connected_paths != 0) {
        at_once_ = true;
        broken(path_end::refused,
               error(std::errc::resource_unavailable_try_again, "another path came up first"));
        co_return;
    }
    state_.to(client_path_state::connected, "the server has said where the chunks are");
    shared_.path_up(id_, lives_);
    if (reconnects_ != 0)
        shared_.stats.reconnects.add();
    attempt_->outcome = result<void>();
    attempt_->over.set();
    shared_.path_moved.set();
    life.spawn(already_made, heartbeats());
    co_await down_.wait_shielded();
}

task<result<void>> client_path::set_up()
{
    auto done = co_await prepare();
    if (done)
        done = co_await connect_all();
    if (done)
        done = co_await inform();
    co_return done;
}

task<void> client_path::limit_set_up()
{
    const bool late = co_await sleep_for(shared_.options.set_up);
    if (late && state_ == client_path_state::setting_up)
        broken(path_end::unfinished, error(std::errc::timed_out, "the path was not set up in time"));
}

// Once: what stays the same however often the path is made again.
task<result<void>> client_path::prepare()
{
    if (domain_)
        co_return result<void>();
    auto made = device_.make_domain();
    if (!made)
        co_return made.error();
    auto added = co_await (*made)->add_pool(shared_.buffers);
    if (!added)
        co_return added.error();
    domain_ = std::move(*made);
    co_return result<void>();
}

task<result<void>> client_path::connect_all()
{
    connect_request m;
    m.connections = shared_.options.connections;
    m.reconnects = reconnects_;
    m.path = id_;
    m.session = shared_.session;
    // A path that joins others must not begin a session: the server may have lost it while we have not heard of that.
    m.first = began_ = shared_.connected_paths == 0;
    for (std::uint16_t i = 0; i < m.connections; ++i) {
        if (state_ != client_path_state::setting_up)
            co_return cause_;
        m.connection = i;
        connections_.push_back(std::make_unique<client_connection>(*this, i));
        const auto connected = co_await connections_.back()->connect(m);
        if (!connected)
            co_return connected;
    }
    co_return result<void>();
}

// Says who we are, and learns where the chunks are.
task<result<void>> client_path::inform()
{
    const std::uint32_t depth = shared_.queue_depth;
    slot_size_ = 512;
    static_assert(client::max_user_size + read_header_size <= 512);
    const std::size_t answer_size = info_response_size(depth);
    const std::size_t wanted = std::max(slot_size_ * depth, info_request_size + answer_size);
    if (!headers_ || headers_.size() < wanted) {
        headers_ = co_await shared_.buffers.acquire(wanted);
        if (!headers_)
            co_return error(std::errc::not_enough_memory, "memory for a path's headers", wanted);
    }
    const auto request = encode_info_request(shared_.options.session);
    std::ranges::copy(request, headers_.data());
    std::byte* const answer = headers_.data() + info_request_size;
    client_connection& c = *connections_.front();
    informed_.reset();
    const verbs::receive_request one{0, {answer, static_cast<std::uint32_t>(answer_size), 0}};
    if (auto posted = c.queue_pair().post_receive({&one, 1}); !posted)
        co_return posted;
    // The first connection has service messages and heartbeats alone.
    for (std::size_t i = 0; i < connections_.size(); ++i) {
        auto posted = co_await connections_[i]->stand(i == 0 ? service_queue_depth : depth);
        if (!posted)
            co_return posted;
    }
    const verbs::segment message{headers_.data(), info_request_size, 0};
    verbs::send_request send;
    send.segments = {&message, 1};
    if (auto posted = c.post({&send, 1}); !posted)
        co_return posted;
    co_await informed_.wait_shielded();
    if (state_ != client_path_state::setting_up)
        co_return cause_;
    std::vector<descriptor> pieces(depth);
    const auto count =
        decode_info_response({answer, std::min<std::size_t>(info_length_, answer_size)}, pieces);
    if (!count)
        co_return count.error();
    co_return take_chunks(std::span(pieces).first(*count));
}

void client_path::informed(std::uint32_t length) noexcept
{
    info_length_ = length;
    informed_.set();
}

result<void> client_path::take_chunks(std::span<const descriptor> pieces)
{
    const std::uint32_t size = shared_.chunk_size();
    chunks_.clear();
    for (const descriptor& d : pieces) {
        if (d.length == 0 || d.length % size != 0 || chunks_.size() + d.length / size > shared_.queue_depth)
            return error(std::errc::bad_message, "chunks that are not those that the RTRS server announced",
                         d.length);
        for (std::uint32_t at = 0; at < d.length; at += size)
            chunks_.push_back({d.address + at, d.key, size});
    }
    if (chunks_.size() != shared_.queue_depth)
        return error(std::errc::bad_message, "fewer chunks than the RTRS server announced", chunks_.size());
    under_way_.assign(shared_.queue_depth, nullptr);
    return {};
}

// A server that drains answers what is under way before it ends a path. Each connection has its order, but not all of them together: the end of
// one may be seen before an answer that stands in another.
task<void> client_path::take_last_answers()
{
    const time_point until = shared_.shard.clock().now() + time_for_last_answers;
    const auto moved = [this]() -> task<result<void>> {
        co_await connection_moved_.wait();
        co_return result<void>();
    };
    const auto is_owed = [this] {
        return std::ranges::any_of(under_way_, [](const io_operation* o) { return o != nullptr; }) &&
               std::ranges::any_of(connections_, [](const auto& c) { return c->is_up(); });
    };
    try {
        for (bool goes_on = true; goes_on && is_owed() && by_server_ && !closing();) {
            const time_point now = shared_.shard.clock().now();
            connection_moved_.reset();
            goes_on = now < until && bool(co_await with_timeout(until - now, moved()));
        }
    } catch (const std::bad_alloc&) { // they are asked for again
    }
}

task<void> client_path::take_down(bool orderly)
{
    for (const auto& c : connections_)
        c->end(orderly);
    for (const auto& c : connections_)
        co_await c->ended();
    connections_.clear();
    // Nothing touches their memory any more: they go on elsewhere.
    for (io_operation*& o : under_way_) {
        if (o != nullptr)
            std::exchange(o, nullptr)->ended.set();
    }
}

task<void> client_path::heartbeats()
{
    missed_ = 0;
    beat_at_.reset();
    for (;;) {
        const bool due = co_await sleep_for(shared_.options.heartbeat);
        if (!due || state_ != client_path_state::connected)
            co_return;
        if (missed_ != 0)
            counters_.missed_heartbeats.add();
        if (missed_++ > shared_.options.misses) {
            broken(path_end::silent,
                   error(std::errc::timed_out, "nothing came from the RTRS server", missed_));
            co_return;
        }
        if (beat_at_)
            continue;
        beat_at_ = shared_.shard.clock().now();
        verbs::send_request beat;
        beat.opcode = verbs::opcode::write_with_immediate;
        beat.immediate = make_immediate(immediate_type::heartbeat);
        (void)connections_.front()->post({&beat, 1});
    }
}

// --- requests --------------------------------------------------------------------------------------

void client_path::answered(const response& r, const new_key* key) noexcept
{
    const auto bad = [&](const char* what) {
        broken(path_end::bad_message, error(std::errc::bad_message, what, r.chunk));
    };
    if (r.chunk >= under_way_.size() || under_way_[r.chunk] == nullptr) {
        bad("an answer to no request");
        return;
    }
    io_operation& o = *under_way_[r.chunk];
    if (o.answered) {
        bad("a second answer to a request");
        return;
    }
    if (new_keys_ != (key != nullptr) || (key != nullptr && key->chunk != r.chunk)) {
        bad(key == nullptr ? "an answer without its chunk's new key" : "an answer with another chunk's key");
        return;
    }
    if (key != nullptr)
        chunks_[r.chunk].key = key->key;
    o.answered = true;
    if (r.error != 0)
        o.outcome = error(std::error_code(r.error, std::generic_category()), servers_answer);
    if (!o.leaving) {
        under_way_[r.chunk] = nullptr;
        o.ended.set();
        connection_moved_.set();
    }
}

void client_path::arrived(std::uint32_t immediate, const new_key* key) noexcept
{
    const immediate_type type = type_of(immediate);
    if (type == immediate_type::response || type == immediate_type::response_invalidated) {
        answered(decode_response(immediate), key);
        return;
    }
    if (key != nullptr) {
        broken(path_end::bad_message,
               error(std::errc::bad_message, "a chunk's new key with no answer", key->chunk));
        return;
    }
    switch (type) {
    case immediate_type::heartbeat: {
        verbs::send_request reply;
        reply.opcode = verbs::opcode::write_with_immediate;
        reply.immediate = make_immediate(immediate_type::heartbeat_reply);
        (void)connections_.front()->post({&reply, 1});
        return;
    }
    case immediate_type::heartbeat_reply:
        if (!beat_at_)
            return; // nobody asked
        latency_ = shared_.shard.clock().now() - *std::exchange(beat_at_, std::nullopt);
        return;
    default:
        broken(path_end::bad_message,
               error(std::errc::bad_message, "an immediate that servers do not send", immediate));
    }
}

// The device has sent the request of this chunk, and its memory is the caller's again once there is an answer.
void client_path::left(std::uint32_t chunk) noexcept
{
    if (chunk >= under_way_.size() || under_way_[chunk] == nullptr)
        return;
    io_operation& o = *under_way_[chunk];
    o.leaving = false;
    if (o.answered) {
        under_way_[chunk] = nullptr;
        o.ended.set();
        connection_moved_.set();
    }
}

client_connection& client_path::choose(const io_operation& o) noexcept
{
    if (o.service || connections_.size() == 1)
        return *connections_.front();
    next_connection_ = next_connection_ + 1 < connections_.size() ? next_connection_ + 1 : 1;
    return *connections_[next_connection_];
}

result<void> client_path::post(io_operation& o, client_connection& c, const verbs::grant* sink,
                               std::uint32_t key_of_data)
{
    std::byte* const slot = headers_.data() + o.chunk * slot_size_;
    const auto user = o.user->write({slot, client::max_user_size});
    if (!user) { // nothing was sent this time; before, it may have been
        if (auto& by = shared_.sent_by[o.chunk]; by.size() == 1)
            by.clear();
        o.refused = true;
        o.outcome = user.error();
        o.ended.set();
        return {};
    }
    io_header header;
    header.is_write = o.is_write;
    header.user_size = static_cast<std::uint16_t>(*user);
    if (sink != nullptr) {
        const verbs::remote_segment at = sink->where();
        header.sink = descriptor{at.address, at.key, at.length};
    }
    const std::size_t header_size = encode({slot + *user, read_header_size}, header);
    const auto data_size = static_cast<std::uint32_t>(o.data.size());
    std::array<verbs::segment, 2> segments;
    std::size_t count = 0;
    if (o.is_write && data_size != 0)
        segments[count++] = {o.data.data(), data_size, key_of_data};
    segments[count++] = {slot, static_cast<std::uint32_t>(*user + header_size), 0};
    verbs::send_request w;
    w.id = std::uint64_t(o.chunk) + 1;
    w.opcode = verbs::opcode::write_with_immediate;
    w.segments = std::span(segments).first(count);
    w.remote_address = chunks_[o.chunk].address + (o.is_write ? 0 : data_size);
    w.remote_key = chunks_[o.chunk].key;
    w.immediate =
        request_layout(shared_.queue_depth).immediate(o.chunk, data_size + static_cast<std::uint32_t>(*user));
    o.leaving = true;
    return c.post({&w, 1});
}

/// A request that the path has to do with: close() waits until it is none any more, also if an exception ends it.
class client_path::counted {
public:
    explicit counted(client_path& p) noexcept : path_(p) { ++path_.in_flight_; }
    counted(const counted&) = delete;
    ~counted()
    {
        if (--path_.in_flight_ == 0)
            path_.idle_.set();
    }

private:
    client_path& path_;
};

/// A request whose answer the path looks for, as long as it lives in its caller's task.
class client_path::placed {
public:
    placed(client_path& p, io_operation& o) noexcept : path_(p), operation_(o)
    {
        path_.under_way_[o.chunk] = &o;
        path_.counters_.in_flight.add(1);
    }
    placed(const placed&) = delete;
    ~placed()
    {
        if (operation_.chunk < path_.under_way_.size() && path_.under_way_[operation_.chunk] == &operation_)
            path_.under_way_[operation_.chunk] = nullptr;
        path_.counters_.in_flight.add(-1);
    }

private:
    client_path& path_;
    io_operation& operation_;
};

// Until the request is posted, an exception costs it alone. Behind that nothing throws, since the device is at its memory.
task<void> client_path::issue(io_operation& o)
{
    const std::uint64_t life = lives_;
    const counted is_counted(*this);
    std::unique_ptr<verbs::region> region;
    std::array<verbs::grant_request, 1> sink;
    std::uint32_t key = 0;
    result<void> ready;
    if (!o.data.empty() && !domain_->is_registered(o.data)) {
        auto registered = co_await domain_->register_memory(o.data);
        if (registered) {
            region = std::move(*registered);
            key = region->local_key();
        } else {
            ready = registered.error();
        }
    }
    if (ready && !o.is_write && !o.data.empty()) {
        sink[0].memory = o.data;
        sink[0].rights = verbs::access::local_write | verbs::access::remote_write;
        ready = co_await domain_->make_grants(sink);
    }
    // While that took its time the path may have broken and come back, and the session begun anew.
    const bool as_before = takes_requests() && life == lives_ && (o.service || !shared_.restarting);
    if (ready && as_before) {
        auto& by = shared_.sent_by[o.chunk];
        by.push_back({id_, lives_});
        if (by.size() != 1)
            shared_.stats.failovers.add();
        o.ended.reset();
        const placed is_placed(*this, o);
        const time_point began = shared_.shard.clock().now();
        const auto posted = post(o, choose(o), sink[0].made ? &sink[0].made : nullptr, key);
        if (!posted)
            broken(path_end::lost, posted.error());
        // Also where it could not be posted: the connection ends, and until then the device may have seen it.
        if (!o.refused)
            co_await o.ended.wait_shielded();
        if (o.answered)
            counters_.ended(o.is_write, o.outcome.has_value(), o.data.size(),
                            static_cast<std::uint64_t>((shared_.shard.clock().now() - began).count()));
    } else if (!ready && as_before) {
        o.answered = true;
        o.outcome = ready.error();
    }
    if (sink[0].made) {
        std::array<verbs::grant, 1> made;
        made[0] = std::move(sink[0].made);
        try {
            co_await domain_->revoke(made);
        } catch (const std::bad_alloc&) { // dropped: all who may use it are of this shard
        }
    }
}

} // namespace verbena::rtrs
