// SPDX-License-Identifier: Apache-2.0
#include <verbena/core/verbs/connection.hpp>

#include <algorithm>
#include <limits>

namespace verbena::verbs {

namespace {

// A completion's id says what it is of.
constexpr std::uint64_t receive_bit = std::uint64_t(1) << 63;
constexpr std::size_t everybody = std::numeric_limits<std::size_t>::max() / 2;
// Until memory is looked for again.
constexpr duration shortage = std::chrono::milliseconds(10);

error stopped() noexcept { return error(std::errc::operation_canceled, "the task was asked to stop"); }

} // namespace

connection::connection(reactor& shard, buffer_pool& pool, const connection_options& o)
    : shard_(shard),
      pool_(pool),
      message_size_(o.message_size),
      operations_(std::max(1u, o.operations)),
      room_(operations_.size()),
      receives_(std::max(1u, o.receives)),
      arrived_(receives_.size())
{
    free_operations_.reserve(operations_.size());
    for (std::size_t i = operations_.size(); i > 0; --i)
        free_operations_.push_back(static_cast<std::uint32_t>(i - 1));
    free_receives_.reserve(receives_.size());
    for (std::size_t i = receives_.size(); i > 0; --i)
        free_receives_.push_back(static_cast<std::uint32_t>(i - 1));
}

connection::~connection()
{
    // First: until then a device may touch the memory that is kept below.
    pair_.reset();
}

queue_pair_options connection::depths() const noexcept
{
    queue_pair_options o;
    o.send_depth = static_cast<std::uint32_t>(operations_.size());
    o.receive_depth = static_cast<std::uint32_t>(receives_.size());
    return o;
}

namespace {

connect_options set_up(const connection_options& o, const queue_pair_options& depths)
{
    connect_options out;
    out.private_data = o.private_data;
    out.initiator_depth = o.reads;
    out.responder_resources = o.peer_reads;
    out.timeout = o.timeout;
    out.queue_pair = depths;
    return out;
}

} // namespace

// It is destroyed when its end is over, which may take its time on a device.
task<error> connection::fail(error cause)
{
    if (!down_)
        pair_->abort(cause);
    co_await ended_.wait_shielded();
    co_return cause;
}

// Posts the receives; the caller drops the connection if that fails.
result<void> connection::begin(std::unique_ptr<queue_pair> pair)
{
    pair_ = std::move(pair);
    pair_->set_handler(this);
    while (!free_receives_.empty()) {
        if (const auto posted = post_receive(); !posted)
            return posted;
    }
    return {};
}

task<result<std::unique_ptr<connection>>> connection::connect(context& device, std::string_view address,
                                                              protection_domain& domain, buffer_pool& pool,
                                                              const connection_options& options,
                                                              std::vector<std::byte>* reply)
{
    std::unique_ptr<connection> made(new connection(device.shard(), pool, options));
    const connect_options o = set_up(options, made->depths());
    std::vector<std::byte> unread;
    auto pair = co_await device.connect(address, domain, o, reply != nullptr ? *reply : unread);
    if (!pair)
        co_return pair.error();
    const auto begun = made->begin(std::move(*pair));
    if (!begun)
        co_return co_await made->fail(begun.error());
    co_return made;
}

task<result<std::unique_ptr<connection>>> connection::accept(reactor& shard,
                                                             std::unique_ptr<connect_request> request,
                                                             protection_domain& domain, buffer_pool& pool,
                                                             const connection_options& options)
{
    std::unique_ptr<connection> made(new connection(shard, pool, options));
    const connect_options o = set_up(options, made->depths());
    auto pair = co_await request->make_queue_pair(domain, o.queue_pair);
    if (!pair)
        co_return pair.error();
    result<void> good = made->begin(std::move(*pair));
    if (good)
        good = co_await request->accept(o);
    if (!good)
        co_return co_await made->fail(good.error());
    co_return made;
}

// There is a slot for it.
result<void> connection::post_receive()
{
    lease memory;
    if (message_size_ != 0) {
        memory = pool_.try_acquire(message_size_);
        if (!memory)
            return error(std::errc::not_enough_memory, "no memory for a connection's receives",
                         message_size_);
    }
    const std::uint32_t slot = free_receives_.back();
    receive_request r;
    r.id = receive_bit | slot;
    if (memory)
        r.segment = {memory.data(), message_size_, 0};
    if (auto posted = pair_->post_receive({&r, 1}); !posted)
        return posted;
    free_receives_.pop_back();
    receives_[slot].memory = std::move(memory);
    return {};
}

// As many as there is memory for; the others follow. A queue pair that takes none is about to end.
void connection::post_receives()
{
    while (!down_ && !free_receives_.empty()) {
        const auto posted = post_receive();
        if (posted)
            continue;
        if (posted.error() == std::errc::not_enough_memory)
            shard_.timers().arm(*this, shard_.now() + shortage);
        return;
    }
}

void connection::on_timer() noexcept { post_receives(); }

task<result<void>> connection::run(send_request request, lease memory, std::size_t size, outcome& out)
{
    if (size > (memory ? memory.size() : 0) || size > std::numeric_limits<std::uint32_t>::max())
        co_return error(std::errc::invalid_argument, "more bytes than the buffer has", size);
    const bool room = co_await room_.acquire();
    if (!room)
        co_return stopped();
    if (down_) {
        room_.release();
        co_return cause_;
    }
    const std::uint32_t slot = free_operations_.back();
    const segment local{memory ? memory.data() : nullptr, static_cast<std::uint32_t>(size), 0};
    request.id = slot;
    if (size != 0)
        request.segments = {&local, 1};
    if (const auto posted = pair_->post_send({&request, 1}); !posted) {
        room_.release();
        co_return posted.error();
    }
    free_operations_.pop_back();
    operation& o = operations_[slot];
    o.memory = std::move(memory);
    o.awaited = &out;
    const bool ended = co_await out.done.wait();
    if (!ended && !out.done.is_set()) {
        o.awaited = nullptr;
        co_return stopped();
    }
    if (out.status == status::success)
        co_return result<void>();
    // What ended the connection tells more.
    if (out.status == status::work_request_flushed && down_)
        co_return cause_;
    co_return error(make_error_code(out.status), "a work request", out.vendor_error);
}

task<result<void>> connection::run(send_request request, lease memory, std::size_t size)
{
    outcome out(false);
    co_return co_await run(request, std::move(memory), size, out);
}

task<result<void>> connection::send(lease memory, std::size_t size)
{
    send_request r;
    co_return co_await run(r, std::move(memory), size);
}

task<result<void>> connection::send_with_invalidate(lease memory, std::size_t size, std::uint32_t invalidate)
{
    send_request r;
    r.opcode = opcode::send_with_invalidate;
    r.invalidate_key = invalidate;
    co_return co_await run(r, std::move(memory), size);
}

task<result<void>> connection::send_with_immediate(lease memory, std::size_t size, std::uint32_t immediate)
{
    send_request r;
    r.opcode = opcode::send_with_immediate;
    r.immediate = immediate;
    co_return co_await run(r, std::move(memory), size);
}

task<result<void>> connection::write(lease memory, std::size_t size, const remote_segment& to)
{
    send_request r;
    r.opcode = opcode::rdma_write;
    r.remote_address = to.address;
    r.remote_key = to.key;
    if (size > to.length)
        co_return error(std::errc::invalid_argument, "more bytes than the peer's memory has", size);
    co_return co_await run(r, std::move(memory), size);
}

task<result<void>> connection::write_with_immediate(lease memory, std::size_t size, const remote_segment& to,
                                                    std::uint32_t immediate)
{
    send_request r;
    r.opcode = opcode::write_with_immediate;
    r.remote_address = to.address;
    r.remote_key = to.key;
    r.immediate = immediate;
    if (size > to.length)
        co_return error(std::errc::invalid_argument, "more bytes than the peer's memory has", size);
    co_return co_await run(r, std::move(memory), size);
}

task<result<lease>> connection::read(lease memory, std::size_t size, const remote_segment& from)
{
    send_request r;
    r.opcode = opcode::rdma_read;
    r.remote_address = from.address;
    r.remote_key = from.key;
    if (size > from.length)
        co_return error(std::errc::invalid_argument, "more bytes than the peer's memory has", size);
    if (size == 0)
        co_return std::move(memory);
    outcome out(true);
    const auto done = co_await run(r, std::move(memory), size, out);
    if (!done)
        co_return done.error();
    co_return std::move(out.memory);
}

task<result<message>> connection::receive()
{
    const bool any = co_await filled_.acquire();
    if (!any)
        co_return stopped();
    if (count_ == 0) {
        filled_.release(); // for whoever asks next
        co_return cause_;
    }
    const arrival a = arrived_[first_];
    first_ = (first_ + 1) % arrived_.size();
    --count_;
    message out(std::move(receives_[a.slot].memory), a.what);
    free_receives_.push_back(a.slot);
    post_receives();
    co_return std::move(out);
}

void connection::on_completions(std::span<const completion> batch) noexcept
{
    for (const completion& c : batch) {
        if ((c.id & receive_bit) != 0) {
            const auto slot = static_cast<std::uint32_t>(c.id);
            if (c.status != status::success) {
                receives_[slot].memory.reset();
                free_receives_.push_back(slot);
                continue;
            }
            arrived_[(first_ + count_) % arrived_.size()] = {slot, c};
            ++count_;
            filled_.release();
            continue;
        }
        operation& o = operations_[c.id];
        if (outcome* const out = std::exchange(o.awaited, nullptr); out != nullptr) {
            out->status = c.status;
            out->vendor_error = c.vendor_error;
            if (out->keeps)
                out->memory = std::move(o.memory);
            out->done.set();
        }
        o.memory.reset();
        free_operations_.push_back(static_cast<std::uint32_t>(c.id));
        room_.release();
    }
}

void connection::on_disconnected(const error& cause) noexcept
{
    down_ = true;
    cause_ = cause;
    ended_.set();
    filled_.release(everybody);
    room_.release(everybody);
}

void connection::disconnect() noexcept
{
    if (!down_)
        pair_->disconnect();
}

task<error> connection::ended()
{
    const bool over = co_await ended_.wait();
    co_return over ? cause_ : stopped();
}

} // namespace verbena::verbs
