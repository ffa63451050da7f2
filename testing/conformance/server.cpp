// SPDX-License-Identifier: Apache-2.0
#include <verbena/testing/conformance/server.hpp>

#include <verbena/core/task/exception.hpp>

#include <algorithm>
#include <cstring>
#include <exception>

namespace verbena::testing::conformance {

class server::place {
public:
    explicit place(server& s) noexcept : server_(s) { ++server_.sessions_; }
    place(const place&) = delete;
    ~place() { --server_.sessions_; }

private:
    server& server_;
};

// A server that serves one run ends when the session of that run has ended, whatever ends it.
class server::last {
public:
    last(server& s, const session& of) noexcept : server_(s), of_(of) {}
    last(const last&) = delete;
    ~last()
    {
        if (of_.main && server_.once_)
            server_.listener_->close();
    }

private:
    server& server_;
    const session& of_;
};

class server::lost final : public exception_handler {
public:
    explicit lost(const server& s) noexcept : server_(s) {}
    void on_exception(const std::exception_ptr& e) noexcept override
    {
        try {
            if (server_.options_.complain)
                server_.options_.complain("a session ended: " + what_of(e));
        } catch (...) { // nor is there memory to say so
        }
    }

private:
    const server& server_;
};

class server::runs {
public:
    runs(server& s, scope& sessions) noexcept : server_(s) { server_.running_ = &sessions; }
    runs(const runs&) = delete;
    ~runs() { server_.running_ = nullptr; }

private:
    server& server_;
};

task<void> server::refuse(verbs::connect_request& r, const greeting& with)
{
    const auto data = with.write();
    (void)co_await r.reject(data);
}

void server::complain(const verbs::connect_request& r, const std::string& of) const
{
    if (options_.complain)
        options_.complain(std::string(r.peer_name()) + ": " + of);
}

task<void> server::run(verbs::listener& where, bool once)
{
    listener_ = &where;
    once_ = once;
    lost ended(*this);
    scope sessions(context_.shard(), nullptr, &ended);
    const runs now(*this, sessions);
    std::exception_ptr failed;
    try {
        for (;;) {
            auto next = co_await where.next();
            if (!next)
                break;
            sessions.spawn(&server::serve, this, std::move(*next));
        }
    } catch (...) {
        failed = std::current_exception();
    }
    co_await sessions.join();
    if (failed)
        std::rethrow_exception(failed);
}

void server::stop() noexcept
{
    stopping_ = true;
    if (running_ != nullptr)
        running_->request_stop();
}

task<void> server::serve(std::unique_ptr<verbs::connect_request> r)
{
    const auto said = greeting::read(r->private_data());
    if (!said && options_.others && options_.others(r))
        co_return;
    if (r == nullptr) // taken all the same
        co_return;
    if (!said || said->what == greeting::refuse_me) {
        if (!said)
            complain(*r, said.error().message());
        const greeting no = said ? *said : greeting();
        co_await refuse(*r, no);
        co_return;
    }
    if (sessions_ >= max_sessions) {
        complain(*r,
                 "refused: " + std::to_string(sessions_) + " connections are served, and no more at once");
        greeting no;
        no.what = greeting::full;
        no.id = said->id;
        co_await refuse(*r, no);
        co_return;
    }
    const place taken(*this);
    session s(context_);
    const last closes(*this, s);
    std::string failed;
    try {
        co_await s.link.prepare();
        verbs::connect_options o;
        auto made = co_await r->make_queue_pair(s.link.domain(), o.queue_pair);
        need(made, "make a queue pair");
        s.link.adopt(std::move(*made));
        s.link.post_receives();
        const auto data = said->write();
        o.private_data = data;
        const auto accepted = co_await r->accept(o);
        need(accepted, "accept");
        co_await talk(s);
    } catch (const std::exception& e) {
        failed = e.what();
    } catch (...) {
        failed = "something was thrown that is no std::exception";
    }
    if (!failed.empty()) {
        // A check that breaks the connection on purpose ends here too, and its client asks how this end ended. The failure may
        // come before that end is told.
        const auto deadline = context_.shard().clock().now() + std::chrono::seconds(5);
        while (!stopping_ && !s.link.ended() && context_.shard().clock().now() < deadline)
            co_await end::pause();
        if (!stopping_ && !s.link.ended())
            complain(*r, failed);
    }
    note_end(s, said->id);
}

task<void> server::talk(session& s)
{
    for (;;) {
        // A connection may be silent for as long as the client has to do with others.
        while (!stopping_ && !s.link.ended() && !s.link.has_message())
            co_await s.link.pause();
        if (stopping_ || !s.link.has_message())
            co_return;
        const verbs::completion c = co_await s.link.received();
        need(c.length >= message::size, "a message too short");
        const message m = message::read(s.link.incoming(c).data());
        s.link.release(c);
        co_await answer(s, m);
    }
}

task<void> server::answer(session& s, const message& m)
{
    end& link = s.link;
    message reply;
    reply.what = m.what;
    const verbs::remote_segment theirs{static_cast<std::uint32_t>(m.a), static_cast<std::uint32_t>(m.c), m.b};
    switch (m.what) {
    case request::describe: {
        s.main = true;
        const std::size_t bytes = std::min(options_.description.size(), end::slot - message::size);
        reply.a = bytes;
        reply.write(link.outgoing().data());
        std::memcpy(link.outgoing().data() + message::size, options_.description.data(), bytes);
        const std::uint64_t id = link.post(verbs::opcode::send, link.outgoing().first(message::size + bytes));
        co_await link.succeeded(id, "send the description");
        co_return;
    }
    case request::open: {
        need(m.b <= end::bulk_size, "more memory than there is");
        co_await link.revoke(s.opened);
        s.memory = link.bulk(m.b);
        fill(s.memory, m.c);
        s.before = sum(s.memory);
        s.opened = co_await link.grant(s.memory, verbs::access(m.a));
        const verbs::remote_segment where = s.opened.where();
        reply.a = where.key;
        reply.b = where.address;
        reply.c = where.length;
        break;
    }
    case request::sum:
        need(m.a <= end::bulk_size, "more memory than there is");
        reply.a = sum(link.bulk(m.a));
        break;
    case request::revoke: co_await link.revoke(s.opened); break;
    case request::pull: {
        need(m.c <= end::bulk_size, "more memory than there is");
        const std::uint64_t id = link.post(verbs::opcode::rdma_read, link.bulk(m.c), theirs);
        co_await link.succeeded(id, "RDMA Read");
        reply.a = sum(link.bulk(m.c));
        break;
    }
    case request::push:
    case request::push_last: {
        need(m.c <= end::bulk_size, "more memory than there is");
        fill(link.bulk(m.c), m.d);
        const bool last = m.what == request::push_last;
        reply.d = last && !context_.query().remote_invalidate ? 1 : 0;
        const std::uint64_t id = link.post(verbs::opcode::rdma_write, link.bulk(m.c), theirs);
        co_await link.send(reply, last && reply.d == 0 ? theirs.key : 0);
        co_await link.succeeded(id, "RDMA Write");
        co_return;
    }
    case request::expect: reply = co_await take_numbered(s, m.a); break;
    case request::takes_immediate: reply.a = context_.query().write_with_immediate ? 1 : 0; break;
    case request::immediate: {
        const verbs::completion c = co_await link.received();
        need(c.opcode == verbs::opcode::receive_immediate, "another completion than that of an immediate");
        reply.a = c.immediate;
        reply.b = c.length;
        link.release(c);
        break;
    }
    case request::fate: {
        const auto deadline = context_.shard().clock().now() + std::chrono::seconds(10);
        while (!stopping_ && !fates_.contains(m.a) && context_.shard().clock().now() < deadline)
            co_await end::pause();
        if (const auto found = fates_.find(m.a); found != fates_.end())
            reply.a = found->second; // else it stands: no bit
        break;
    }
    case request::nothing: co_return;
    default: throw failure("a request that nobody knows");
    }
    co_await link.send(reply);
}

task<message> server::take_numbered(session& s, std::uint64_t count)
{
    message reply;
    reply.what = request::expect;
    std::vector<std::byte> wanted(end::slot);
    for (std::uint32_t i = 0; i < count; ++i) {
        const verbs::completion c = co_await s.link.received();
        const std::size_t bytes = numbered(i, wanted);
        reply.a += alike(s.link.incoming(c), std::span(wanted).first(bytes)) ? 1 : 0;
        s.link.release(c);
    }
    co_return reply;
}

void server::note_end(session& s, std::uint64_t id)
{
    std::uint64_t fate = 0;
    if (s.link.ended())
        fate |= fate_ended;
    if (s.link.why() == verbs::make_error_code(verbs::connection_end::orderly))
        fate |= fate_orderly;
    if (sum(s.memory) == s.before || s.memory.empty())
        fate |= fate_untouched;
    if (s.link.ends() == 1 && s.link.standing() == 0 && s.link.strays() == 0)
        fate |= fate_flushed;
    if (fates_.size() >= max_fates)
        fates_.erase(fates_.begin());
    fates_[id] = fate;
}

} // namespace verbena::testing::conformance
