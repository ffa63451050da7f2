// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/nfs/client/v4/pnfs/data_connections.hpp>

#include <verbena/core/reactor/reactor.hpp>
#include <verbena/core/task/already_made.hpp>
#include <verbena/core/task/combine.hpp>
#include <verbena/protocols/nfs/wire/v4/layout_operations.hpp>
#include <verbena/protocols/nfs/wire/v4/rdma_layout.hpp>
#include <verbena/protocols/nfs/wire/v4/universal_address.hpp>

#include <algorithm>
#include <limits>
#include <new>
#include <utility>

namespace verbena::nfs::v4::pnfs {
namespace {

constexpr std::uint64_t receive_bit = std::uint64_t(1) << 63;
constexpr std::uint32_t receives = 2;
constexpr std::size_t receive_size = 1024;
constexpr std::size_t flush_at = receives * receive_size;     // in a connection's own memory
constexpr duration least_rest = std::chrono::milliseconds(1); // or a device is tried without a pause
constexpr std::size_t everybody_waiting = std::numeric_limits<std::size_t>::max() / 2;
constexpr std::uint32_t device_body = 2048; // bytes of what GETDEVICEINFO tells

error no_longer_wanted() noexcept { return error(std::errc::operation_canceled, "I/O by an RDMA layout"); }

task<result<void>> happened(event& e)
{
    const bool has = co_await e.wait();
    if (!has)
        co_return no_longer_wanted();
    co_return result<void>();
}

result<std::string> rdma_address(std::string_view netid, std::string_view text)
{
    const auto read = parse_universal_address(netid, text);
    if (!read)
        return read.error();
    if (read->over != universal_address::transport::rdma)
        return error(std::errc::protocol_not_supported, "a data server whose netid is not rdma or rdma6");
    return read->at.to_string();
}

} // namespace

data_connection::data_connection(const data_connection_options& o, reactor& shard)
    : slots_(std::max(1u, o.requests)), room_(slots_.size()), shard_(shard), limit_(o.io_limit)
{
    free_.reserve(slots_.size());
    for (std::size_t i = slots_.size(); i > 0; --i)
        free_.push_back(static_cast<std::uint32_t>(i - 1));
}

data_connection::~data_connection()
{
    // First: until then a device may touch the memory that the slots keep.
    pair_.reset();
}

result<void> data_connection::begin(std::unique_ptr<verbs::queue_pair> pair, buffer_pool& pool)
{
    pair_ = std::move(pair);
    pair_->set_handler(this);
    own_ = pool.try_acquire(buffer_pool::min_size);
    if (!own_)
        return error(std::errc::not_enough_memory, "receives of a connection to a data server");
    for (std::uint32_t i = 0; i < receives; ++i) {
        verbs::receive_request r;
        r.id = receive_bit;
        r.segment = {own_.data() + i * receive_size, static_cast<std::uint32_t>(receive_size), 0};
        if (auto posted = pair_->post_receive({&r, 1}); !posted)
            return posted;
    }
    return {};
}

void data_connection::end(const error& why) noexcept
{
    if (pair_ != nullptr && !down_)
        pair_->abort(why);
}

void data_connection::watch::begin()
{
    if (is_armed())
        return;
    seen_ = of_.completed_;
    of_.shard_.timers().arm(*this, of_.shard_.clock().now() + of_.limit_);
}

// Work requests of a connection complete in their order, so that if none has completed since, the oldest one is as old.
void data_connection::watch::on_timer() noexcept
{
    if (of_.free_.size() == of_.slots_.size())
        return;
    if (seen_ == of_.completed_)
        of_.end(error(std::errc::timed_out, "a data server that does not answer"));
    else
        begin();
}

task<void> data_connection::ended() { co_await ended_.wait_shielded(); }

task<result<void>> data_connection::read(std::span<const piece> pieces, const lease& memory)
{
    return run(verbs::opcode::rdma_read, pieces, &memory, nullptr);
}

task<result<void>> data_connection::write(std::span<const piece> pieces, const rpc::payload& data)
{
    return run(verbs::opcode::rdma_write, pieces, nullptr, &data);
}

task<result<void>> data_connection::flush(std::uint32_t handle, std::uint64_t address)
{
    piece byte;
    byte.here = own_.bytes().subspan(flush_at, 1);
    byte.handle = handle;
    byte.address = address;
    co_return co_await read(std::span(&byte, 1), own_);
}

task<result<void>> data_connection::passed()
{
    const std::uint64_t upto = posted_;
    while (completed_ < upto && !down_) {
        progress_.reset();
        const bool goes_on = co_await progress_.wait();
        if (!goes_on)
            co_return no_longer_wanted();
    }
    co_return result<void>();
}

task<result<void>> data_connection::run(verbs::opcode what, std::span<const piece> pieces,
                                        const lease* memory, const rpc::payload* data)
{
    transfer t;
    t.left = pieces.size();
    result<void> outcome;
    std::size_t posted = 0;
    watch_.begin();
    for (; posted < pieces.size() && outcome; ++posted) {
        const bool room = co_await room_.acquire();
        if (!room) {
            outcome = no_longer_wanted();
            break;
        }
        if (down_) {
            room_.release();
            outcome = cause_;
            break;
        }
        const piece& p = pieces[posted];
        const verbs::segment local{p.here.data(), static_cast<std::uint32_t>(p.here.size()), 0};
        verbs::send_request r;
        r.id = free_.back();
        r.opcode = what;
        r.segments = {&local, 1};
        r.remote_address = p.address;
        r.remote_key = p.handle;
        if (auto done = pair_->post_send({&r, 1}); !done) {
            room_.release();
            outcome = done.error();
            break;
        }
        ++posted_;
        slot& s = slots_[free_.back()];
        free_.pop_back();
        s.of = &t;
        if (memory != nullptr) {
            s.memory = memory->share();
        } else {
            s.keeper = data->keeper();
            for (std::size_t i = 0; i < data->pieces().size(); ++i) {
                const auto whole = data->pieces()[i];
                if (data->owner(i) && whole.data() <= p.here.data() &&
                    p.here.data() + p.here.size() <= whole.data() + whole.size())
                    s.memory = data->owner(i).share();
            }
        }
    }
    t.left -= pieces.size() - posted;
    if (t.left != 0) {
        const bool waited = co_await t.over.wait();
        if (!waited && t.left != 0) {
            for (slot& s : slots_)
                s.of = s.of == &t ? nullptr : s.of;
            co_return no_longer_wanted();
        }
    }
    if (!outcome)
        co_return outcome;
    if (t.status == verbs::status::success)
        co_return result<void>();
    // What ended the connection tells more.
    if (t.status == verbs::status::work_request_flushed && down_)
        co_return cause_;
    co_return error(make_error_code(t.status), "I/O by an RDMA layout", t.vendor_error);
}

void data_connection::on_completions(std::span<const verbs::completion> batch) noexcept
{
    bool was_sent_to = false;
    for (const verbs::completion& c : batch) {
        if ((c.id & receive_bit) != 0) {
            was_sent_to = was_sent_to || c.status == verbs::status::success;
            continue;
        }
        slot& s = slots_[c.id];
        ++completed_;
        if (transfer* const t = std::exchange(s.of, nullptr)) {
            if (t->status == verbs::status::success && c.status != verbs::status::success) {
                t->status = c.status;
                t->vendor_error = c.vendor_error;
            }
            if (--t->left == 0)
                t->over.set();
        }
        s.memory.reset();
        s.keeper.reset();
        free_.push_back(static_cast<std::uint32_t>(c.id));
        room_.release();
    }
    progress_.set();
    if (was_sent_to)
        end(error(std::errc::protocol_error, "a data server sends a message"));
}

void data_connection::on_disconnected(const error& cause) noexcept
{
    down_ = true;
    cause_ = cause;
    ended_.set();
    progress_.set();
    room_.release(everybody_waiting);
}

data_connections::data_connections(client_session& session, verbs::context& device, buffer_pool& pool,
                                   data_connection_options options)
    : session_(session), context_(device), pool_(pool), options_(std::move(options))
{
    if (!options_.address_of)
        options_.address_of = rdma_address;
    options_.connections = std::max(1u, options_.connections);
    options_.rest = std::max<duration>(options_.rest, least_rest);
}

data_connections::~data_connections()
{
    for (const auto& each : devices_)
        each->lanes.clear();
}

std::size_t data_connections::up() const noexcept
{
    std::size_t all = 0;
    for (const auto& each : devices_)
        all += static_cast<std::size_t>(
            std::ranges::count_if(each->lanes, [](const auto& c) { return c != nullptr && c->is_up(); }));
    return all;
}

bool data_connections::may_send(std::span<const std::byte> memory) const noexcept
{
    return !context_.query().needs_local_keys || (domain_ != nullptr && domain_->is_registered(memory));
}

// A server that starts again has other device ids: those that were used least recently are forgotten.
std::shared_ptr<data_connections::device_entry> data_connections::entry_of(const deviceid4& device)
{
    auto at = std::ranges::find_if(devices_, [&](const auto& each) { return each->id == device; });
    if (at == devices_.end()) {
        if (devices_.size() >= max_devices)
            devices_.erase(
                std::ranges::min_element(devices_, {}, [](const auto& each) { return each->used; }));
        auto made = std::make_shared<device_entry>();
        made->id = device;
        made->lanes.resize(options_.connections);
        devices_.push_back(std::move(made));
        at = std::prev(devices_.end());
    }
    (*at)->used = ++uses_;
    (*at)->incarnation = session_.incarnation();
    return *at;
}

// What no layout names any more rests no longer, and is not tried: where none is up, the one that was named last tells.
bool data_connections::all_rest() const noexcept
{
    const device_entry* last = nullptr;
    for (const auto& each : devices_) {
        if (each->incarnation != session_.incarnation())
            continue;
        if (std::ranges::any_of(each->lanes, [](const auto& c) { return c && c->is_up(); }))
            return false;
        if (last == nullptr || each->used > last->used)
            last = each.get();
    }
    return last != nullptr && context_.shard().clock().now() < last->rests_until;
}

task<data_connections::found> data_connections::get(deviceid4 device, std::size_t lane, duration patience)
{
    const std::shared_ptr<device_entry> e = entry_of(device);
    const std::size_t which = lane % e->lanes.size();
    const task_context& context = co_await current_context();
    const auto now = [&context] { return context.shard->clock().now(); };
    const time_point limit = patience > time_point::max() - now() ? time_point::max() : now() + patience;
    found out;
    while (!is_closed_) {
        out.is_being_made = false;
        if (e->lanes[which] != nullptr && e->lanes[which]->is_up()) {
            out.connection = e->lanes[which];
            co_return out;
        }
        out.why_not = e->why;
        if (now() < e->rests_until)
            co_return out;
        if (!e->is_being_tried) {
            try {
                if (!attempts_)
                    attempts_.emplace(*context.shard, nullptr, nullptr, "connections to data servers");
                attempts_->spawn(already_made, try_device(e, which));
            } catch (const std::bad_alloc&) {
                e->rests_until = now() + options_.rest;
            }
        }
        out.is_being_made = e->is_being_tried;
        if (!out.is_being_made)
            continue;
        if (now() >= limit)
            co_return out;
        task<result<void>> waiting = happened(e->tried);
        const auto over = co_await with_timeout(limit - now(), std::move(waiting));
        if (!over)
            co_return out;
    }
    co_return out;
}

// The id may be that of the server's start before: it is asked for once more then (docs/internals/pnfs.md).
task<void> data_connections::try_device(std::shared_ptr<device_entry> e, std::size_t lane)
{
    struct trying {
        explicit trying(device_entry& d) noexcept : of(d)
        {
            of.is_being_tried = true;
            of.tried.reset();
        }
        trying(const trying&) = delete;
        ~trying()
        {
            of.is_being_tried = false;
            of.tried.set();
        }
        device_entry& of;
    };
    const trying now(*e);
    const task_context& context = co_await current_context();
    e->lanes[lane].reset();
    outcome made;
    try {
        made = co_await connect(e->id);
        if (made.connection == nullptr && !made.is_known)
            made = co_await connect(e->id);
    } catch (const std::bad_alloc&) { // it rests, as after any other failure
        made = outcome();
    }
    // Another one serves in its place: the client may have as many as it may, and the device works.
    if (made.connection == nullptr) {
        const auto other =
            std::ranges::find_if(e->lanes, [](const auto& c) { return c != nullptr && c->is_up(); });
        if (other != e->lanes.end())
            made.connection = *other;
    }
    if (made.connection != nullptr) {
        e->lanes[lane] = made.connection;
        e->rest = duration::zero();
    } else {
        e->why = made.why;
        e->rest = std::clamp(2 * e->rest, options_.rest, std::max(options_.rest, options_.most_rest));
        e->rests_until = context.shard->clock().now() + e->rest;
    }
}

task<result<std::pair<std::string, std::string>>> data_connections::address_of(deviceid4 device)
{
    GETDEVICEINFO4args args;
    args.device_id = device;
    args.layout_type = layouttype4::rdma;
    args.maxcount = device_body;
    operations call(args);
    call.yields(device_body + 64);
    auto ran = co_await session_.run(call);
    if (!ran)
        co_return ran.error();
    const GETDEVICEINFO4res& res = call.get<0>();
    xdr::decoder in(res.addr_body);
    pnfs_rdma_device_addr4 body;
    xdr::codec<pnfs_rdma_device_addr4>::decode(in, body);
    if (!in.ok() || res.layout_type != layouttype4::rdma)
        co_return error(std::errc::bad_message, "an address of a data server that can't be read");
    co_return std::pair(std::string(body.addr.netid), std::string(body.addr.addr));
}

// One at a time: who comes second must not use a domain in which the pool is not registered yet.
task<result<void>> data_connections::prepare()
{
    const bool mine = co_await prepare_turn_.acquire();
    if (!mine)
        co_return no_longer_wanted();
    const held_permit held(prepare_turn_);
    if (domain_ != nullptr)
        co_return result<void>();
    auto made = context_.make_domain();
    if (!made)
        co_return made.error();
    if (context_.query().needs_local_keys) {
        auto added = co_await (*made)->add_pool(pool_);
        if (!added)
            co_return added.error();
    }
    domain_ = std::move(*made);
    co_return result<void>();
}

task<data_connections::outcome> data_connections::connect(deviceid4 device)
{
    outcome out;
    auto told = co_await address_of(device);
    if (!told) {
        out.why = no_connection::unknown_device;
        ++counts_.failed;
        co_return out;
    }
    const auto address = options_.address_of(told->first, told->second);
    if (!address) {
        out.why = no_connection::no_address;
        ++counts_.failed;
        co_return out;
    }
    auto ready = co_await prepare();
    if (!ready) {
        ++counts_.failed;
        co_return out;
    }
    rdma_layout_connect who;
    who.client = session_.client_id();
    who.session = session_.id();
    who.device = device;
    const auto private_data = encode(who);
    const task_context& context = co_await current_context();
    std::shared_ptr<data_connection> made(new data_connection(options_, *context.shard));
    verbs::connect_options o;
    o.private_data = private_data;
    o.initiator_depth = options_.reads;
    o.responder_resources = 0;
    o.timeout = options_.timeout;
    o.queue_pair.send_depth = static_cast<std::uint32_t>(made->slots_.size());
    o.queue_pair.receive_depth = receives;
    std::vector<std::byte> reply;
    auto connecting = context_.connect(*address, *domain_, o, reply);
    auto pair = co_await connecting;
    const auto answer = decode_rdma_layout_answer(reply);
    if (pair && (!answer || answer->reason != 0)) {
        // Something else takes connections there.
        (void)made->begin(std::move(*pair), pool_);
        made->end(error(std::errc::protocol_error, "what answers is no data server"));
        co_await made->ended();
        ++counts_.failed;
        co_return out;
    }
    if (!pair) {
        const auto reason =
            answer ? static_cast<rdma_layout_reject>(answer->reason) : rdma_layout_reject::none;
        if (reason == rdma_layout_reject::none) {
            ++counts_.failed;
            co_return out;
        }
        ++counts_.refused;
        out.is_known = reason != rdma_layout_reject::unknown;
        out.why = out.is_known ? no_connection::refused : no_connection::unknown_device;
        co_return out;
    }
    auto begun = made->begin(std::move(*pair), pool_);
    if (!begun) {
        made->end(begun.error());
        co_await made->ended();
        ++counts_.failed;
        co_return out;
    }
    ++counts_.made;
    out.connection = std::move(made);
    co_return out;
}

task<void> data_connections::close()
{
    is_closed_ = true;
    if (attempts_) {
        attempts_->request_stop();
        co_await attempts_->join();
    }
    const error over(std::errc::connection_aborted, "the client ends");
    std::vector<std::shared_ptr<data_connection>> all;
    for (const auto& each : devices_) {
        for (const auto& c : each->lanes) {
            if (c != nullptr)
                all.push_back(c);
        }
    }
    devices_.clear();
    for (const auto& each : all) {
        each->end(over);
        co_await each->ended();
    }
}

} // namespace verbena::nfs::v4::pnfs
