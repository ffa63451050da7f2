// SPDX-License-Identifier: Apache-2.0
#include <verbena/testing/conformance/end.hpp>

#include <verbena/core/byte_order.hpp>

#include <algorithm>
#include <cstring>

namespace verbena::testing::conformance {
namespace {

constexpr std::uint32_t magic = 0x76636e31; // "vcn1"

} // namespace

// These two go over megabytes in builds without optimisation, so they use pointers.
void fill(std::span<std::byte> to, std::uint64_t seed) noexcept
{
    std::uint64_t x = seed * 0x9e3779b97f4a7c15 + 1;
    std::byte* at = to.data();
    for (std::size_t left = to.size(); left != 0;) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        const std::size_t n = left < sizeof x ? left : sizeof x;
        std::byte octets[sizeof x];
        store_little_endian(octets, x);
        std::memcpy(at, octets, n);
        at += n;
        left -= n;
    }
}

std::uint64_t sum(std::span<const std::byte> of) noexcept
{
    std::uint64_t h = 0xcbf29ce484222325;
    const std::byte* at = of.data();
    for (std::size_t left = of.size(); left != 0;) {
        std::byte octets[sizeof h] = {};
        const std::size_t n = left < sizeof h ? left : sizeof h;
        std::memcpy(octets, at, n);
        h = (h ^ load_little_endian<std::uint64_t>(octets)) * 0x100000001b3;
        h ^= h >> 29; // so that high octets reach low ones
        at += n;
        left -= n;
    }
    return h;
}

bool alike(std::span<const std::byte> a, std::span<const std::byte> b) noexcept
{
    return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

std::size_t numbered(std::uint32_t number, std::span<std::byte> to) noexcept
{
    const std::size_t bytes = message::size + (std::size_t(number) * 7919) % (to.size() - message::size + 1);
    fill(to.first(bytes), number + 1000);
    message m;
    m.what = request::data;
    m.number = number;
    m.write(to.data());
    return bytes;
}

void message::write(std::byte* to) const noexcept
{
    store_big_endian(to, std::uint32_t(what));
    store_big_endian(to + 4, number);
    to += 8;
    for (const std::uint64_t v : {a, b, c, d}) {
        store_big_endian(to, v);
        to += sizeof v;
    }
}

message message::read(const std::byte* from) noexcept
{
    message m;
    m.what = request(load_big_endian<std::uint32_t>(from));
    m.number = load_big_endian<std::uint32_t>(from + 4);
    from += 8;
    for (std::uint64_t* v : {&m.a, &m.b, &m.c, &m.d}) {
        *v = load_big_endian<std::uint64_t>(from);
        from += sizeof *v;
    }
    return m;
}

std::array<std::byte, greeting::total> greeting::write() const noexcept
{
    std::array<std::byte, total> out{};
    fill(out, id);
    store_big_endian(out.data(), magic);
    store_big_endian(out.data() + 4, std::uint32_t(what));
    store_big_endian(out.data() + 8, id);
    return out;
}

result<greeting> greeting::read(std::span<const std::byte> from)
{
    if (from.size() < total)
        return error(std::errc::no_message, "private data shorter than those of the conformance checks",
                     from.size());
    if (load_big_endian<std::uint32_t>(from.data()) != magic)
        return error(std::errc::no_message, "private data that are not of the conformance checks");
    greeting g;
    g.what = kind(load_big_endian<std::uint32_t>(from.data() + 4));
    g.id = load_big_endian<std::uint64_t>(from.data() + 8);
    const auto as_sent = g.write();
    if (!alike(as_sent, from.first(total)) ||
        std::ranges::any_of(from.subspan(total), [](std::byte b) { return b != std::byte{}; }))
        return error(std::errc::bad_message, "private data came other than it was sent", from.size());
    return g;
}

// --- end ---

task<void> end::prepare(end* other)
{
    memory_.resize(2 * slots * slot + bulk_size);
    other_ = other;
    if (other == nullptr) {
        auto made = context_.make_domain();
        need(made, "a protection domain");
        domain_ = std::move(*made);
    }
    auto made = co_await domain().register_memory(memory_);
    need(made, "register memory");
    region_ = std::move(*made);
}

task<void> end::share_receives()
{
    need(other_ == nullptr, "share_receives() is for the end whose memory the receives are");
    verbs::shared_receive_queue_options o;
    o.depth = slots;
    auto made = co_await domain().make_shared_receive_queue(o);
    need(made, "a shared receive queue");
    shared_ = std::move(*made);
}

void end::adopt(std::unique_ptr<verbs::queue_pair> q)
{
    waking_ = false;
    pair_ = std::move(q);
    pair_->set_handler(this);
}

void end::post_receives()
{
    for (std::uint64_t i = 0; i < slots; ++i) {
        verbs::completion c;
        c.id = i;
        release(c);
    }
}

verbs::segment end::segment(std::span<const std::byte> of) const noexcept
{
    return {const_cast<std::byte*>(of.data()), static_cast<std::uint32_t>(of.size()), region_->local_key()};
}

std::uint64_t end::post(verbs::opcode op, std::span<const std::byte> local,
                        const verbs::remote_segment& remote, std::uint32_t invalidate,
                        std::uint32_t immediate, posting how)
{
    verbs::segment s = segment(local);
    if (how.inline_data)
        s.local_key = 0; // of no region
    verbs::send_request w;
    w.id = ++last_id_;
    w.opcode = op;
    w.inline_data = how.inline_data;
    w.signalled = how.signalled;
    w.fence = how.fence;
    if (!local.empty())
        w.segments = {&s, 1};
    w.remote_address = remote.address;
    w.remote_key = remote.key;
    w.invalidate_key = invalidate;
    w.immediate = immediate;
    need(pair_->post_send({&w, 1}), "post a request");
    outstanding_ += how.signalled;
    return w.id;
}

task<verbs::completion> end::finished(std::uint64_t id)
{
    const auto found = [this, id] { return std::ranges::find(sends_, id, &verbs::completion::id); };
    const auto have = [this, found] { return found() != sends_.end() || ended(); };
    co_await until(have, "the completion of a request");
    const auto i = found();
    need(i != sends_.end(), "a request has no completion, and the connection has ended");
    const verbs::completion c = *i;
    sends_.erase(i);
    co_return c;
}

task<void> end::succeeded(std::uint64_t id, const char* what)
{
    const verbs::completion c = co_await finished(id);
    if (c.status != verbs::status::success)
        throw failure(std::string(what) + ": " + std::string(verbs::to_string(c.status)) +
                      (ended() ? "; " + why_.message() : std::string()));
}

task<verbs::completion> end::received()
{
    const auto have = [this] { return has_message() || ended(); };
    co_await until(have, "a message");
    if (receives_.empty())
        throw failure("the connection ended: " + why_.message());
    const verbs::completion c = receives_.front();
    receives_.pop_front();
    co_return c;
}

void end::wake() noexcept
{
    if (waking_ || ended())
        return;
    verbs::send_request w; // its id is 0, which post() gives to none
    w.opcode = verbs::opcode::rdma_write;
    waking_ = pair_->post_send({&w, 1}).has_value();
    *wakes_ += waking_ ? 1 : 0;
}

void end::release(const verbs::completion& c)
{
    end& of = receiver();
    const verbs::receive_request r{c.id, of.segment(std::span(of.memory_).subspan(c.id * slot, slot))};
    need(of.shared_ ? of.shared_->post_receive({&r, 1}) : pair_->post_receive({&r, 1}), "post a receive");
    ++of.standing_;
}

task<void> end::send(const message& m, std::uint32_t invalidate)
{
    m.write(outgoing().data());
    const auto op = invalidate != 0 ? verbs::opcode::send_with_invalidate : verbs::opcode::send;
    const std::uint64_t id = post(op, outgoing().first(message::size), {}, invalidate);
    co_await succeeded(id, "send a message");
}

task<message> end::receive(request what)
{
    const verbs::completion c = co_await received();
    need(c.length >= message::size, "a message of " + std::to_string(c.length) + " octets");
    const message m = message::read(incoming(c).data());
    release(c);
    need(m.what == what, "a message of another kind");
    co_return m;
}

task<message> end::ask(request what, std::uint64_t a, std::uint64_t b, std::uint64_t c, std::uint64_t d)
{
    message m;
    m.what = what;
    m.a = a;
    m.b = b;
    m.c = c;
    m.d = d;
    co_await send(m);
    co_return co_await receive(what);
}

task<void> end::until(std::function<bool()> done, const char* what)
{
    const time_point begun = context_.shard().clock().now();
    time_point wakes = begun + std::chrono::seconds(1);
    for (;;) {
        if (nonsense_ != nullptr)
            throw failure(nonsense_);
        if (done())
            co_return;
        const time_point now = context_.shard().clock().now();
        if (wakes_ != nullptr && now >= wakes) {
            wake();
            wakes = now + std::chrono::seconds(1);
        }
        if (now - begun >= patience)
            throw failure(std::string("nothing came for 60 s: ") + what);
        if (now >= deadline_)
            throw failure(std::string("the check's time is over, waiting for ") + what);
        const bool goes_on = co_await pause();
        if (!goes_on)
            throw failure(std::string("stopped, waiting for ") + what);
    }
}

task<verbs::grant> end::grant(std::span<std::byte> memory, verbs::access rights)
{
    auto made = co_await domain().make_grant(memory, rights,
                                             context_.query().grant_per_queue_pair ? pair_.get() : nullptr);
    need(made, "make a grant");
    co_return std::move(*made);
}

task<void> end::revoke(verbs::grant& g)
{
    const std::span<verbs::grant> one(&g, 1);
    co_await domain().revoke(one);
}

void end::on_completions(std::span<const verbs::completion> batch) noexcept
{
    for (const verbs::completion& c : batch) {
        if (!verbs::is_receive(c.opcode) && c.id == 0) {
            waking_ = false;
            continue;
        }
        std::size_t& count = verbs::is_receive(c.opcode) ? receiver().standing_ : outstanding_;
        if (ends_ != 0 || count == 0) {
            ++strays_;
            continue;
        }
        --count;
        if (verbs::is_receive(c.opcode) && c.id >= slots)
            nonsense_ = "a receive completes that nobody posted";
        else if (c.opcode == verbs::opcode::receive && c.length > slot)
            nonsense_ = "a receive completes with more octets than it has";
        else if (!verbs::is_receive(c.opcode))
            sends_.push_back(c);
        else if (c.status == verbs::status::success) {
            wakes_ = nullptr;
            receives_.push_back(c);
        } else
            ++flushed_;
    }
}

void end::on_disconnected(const error& cause) noexcept
{
    ++ends_;
    why_ = cause;
}

} // namespace verbena::testing::conformance
