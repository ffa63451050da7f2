// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/rnbd/server.hpp>

#include "open_device.hpp"

#include <verbena/core/net/refusals.hpp>
#include <verbena/core/reactor/clock.hpp>
#include <verbena/core/reactor/reactor.hpp>
#include <verbena/core/reactor/shard.hpp>
#include <verbena/core/task/combine.hpp>
#include <verbena/core/task/event.hpp>
#include <verbena/protocols/storage/block_operation.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <map>
#include <new>
#include <optional>
#include <string>

namespace verbena::rnbd {

// At the session's home, but for serve() and io().
class server_session final : public rtrs::session_handler, private open_device::owner {
public:
    server_session(server& owner, const rtrs::session_info& who)
        : owner_(owner),
          home_(who.home != nullptr ? &who.home->reactor() : nullptr),
          stats_(home_ != nullptr ? owner.stats_of(*home_) : owner.stats_.front()),
          who_(who),
          client_(std::string(who.peer_address) + ' ' + std::string(who.name))
    {
        owner_.sessions_.push_back(link_);
    }
    ~server_session() override
    {
        for (const auto& d : places_) {
            if (d->is_in_use()) {
                owner_.devices_.close(d->in_table, d->mode);
                if (ended_ != rtrs::path_end::stopped) // this server ends, and no client has gone
                    log_left_open(*d);
            }
            d->forget_owner();
        }
    }
    result<void> add_path(std::string_view peer_address) override;
    void remove_path(std::string_view peer_address, rtrs::path_end why) noexcept override;
    task<result<void>> serve(rtrs::request& r) override;
    void look_again() noexcept;

private:
    bool may_have(const open_device& d) const;
    void forget_removed() noexcept;
    void log_left_open(const open_device& d) noexcept;
    // A copy of the client's message.
    using message_bytes = std::array<std::byte, open_size>; // the largest one
    task<result<void>> control(message type, std::span<const std::byte> from, rtrs::request& r);
    result<void> tell_version(rtrs::request& r, std::span<const std::byte> message);
    result<void> open(rtrs::request& r, std::span<const std::byte> message);
    result<open_device*> open_place(const open_request& asked);
    refused reason_of(const error& why, std::string_view device) const noexcept;
    result<open_device*> free_place();
    result<void> admits(std::size_t number, std::string_view address) const;
    storage::block_backend& device_for_us(std::size_t number);
    task<result<void>> close(std::uint32_t device);
    static task<result<void>> closed(open_device& d);
    void unused(open_device& d) noexcept override;
    task<result<void>> io(const io_request& m, rtrs::request& r);
    task<result<void>> perform(const open_device& d, const io_request& m, rtrs::request& r);
    task<result<void>> clear(const open_device& d, std::uint64_t offset, const io_request& m);

    server& owner_;
    session_link link_{*this};
    reactor* const home_; // nullptr: all is on one shard
    server_stats& stats_; // of home
    const rtrs::session_info who_;
    const std::string client_;                      // as filters tell it from others
    std::vector<std::string> paths_;                // their addresses: each may use what is open
    rtrs::path_end ended_ = rtrs::path_end::closed; // why the last one of those that have ended did
    // Of devices that look different to each client, by their number in the table. They stay when the device is closed, as requests may
    // be under way then; so each is made once.
    std::map<std::size_t, std::unique_ptr<storage::block_backend>> ours_;
    std::vector<std::shared_ptr<open_device>> places_; // by their number in the session
    std::array<std::atomic<open_device*>, server::max_open_devices> by_number_{}; // the same, for all shards
};

namespace {

void count_refusal(server_stats& stats, const error& why) noexcept
{
    switch (why.errno_value()) {
    case ENOENT: stats.refused_unknown.add(); break;
    case EROFS: stats.refused_read_only.add(); break;
    case EPERM: stats.refused_in_use.add(); break;
    case EMFILE: stats.refused_too_many.add(); break;
    default: stats.refused_not_admitted.add(); break;
    }
}

// One more, for as long as it lives.
class under_way {
public:
    explicit under_way(gauge& g) noexcept : gauge_(g) { gauge_.add(1); }
    under_way(const under_way&) = delete;
    ~under_way() { gauge_.add(-1); }

private:
    gauge& gauge_;
};

// What an operation does, while it does it.
class described_io final : private request_detail {
public:
    described_io(rtrs::request& r, const io_request& m, std::string_view device) noexcept
        : request_(r), message_(m), device_(device)
    {
        request_.set_detail(this);
    }
    described_io(const described_io&) = delete;
    ~described_io()
    {
        request_.served(status_);
        request_.set_detail(nullptr);
    }
    /// Without it, as where an exception leaves the operation, it has failed.
    void ended(std::string_view status) noexcept { status_ = status; }

private:
    void describe(request_report& into) const noexcept override;

    rtrs::request& request_;
    const io_request& message_;
    const std::string_view device_;
    std::string_view status_ = "failed";
};

failure failure_of(const error& e) noexcept
{
    switch (e.errno_value()) {
    case EINVAL: return failure::invalid;
    case EROFS: return failure::read_only;
    case EOPNOTSUPP: return failure::unsupported;
    case ENOSPC:
    case EDQUOT: return failure::no_space;
    case EBUSY:
    case EAGAIN: return failure::busy;
    case ECANCELED: return failure::stopped;
    case EIO: return failure::io;
    default: return failure::other;
    }
}

// What whoever runs the server has to look after; the rest is between a client and its request.
const char* cure_of(const error& e) noexcept
{
    if (e.errno_value() == EDQUOT)
        return "raise the quota of its file's owner (quota, repquota), or make room within it; df does not "
               "show it";
    switch (failure_of(e)) {
    case failure::no_space: return "make room where its file lies (df), or move it to where there is some";
    case failure::io: return "look at the disk, and at what the kernel's log says of it";
    default: return nullptr;
    }
}

void log_failure(device_counters& counters, std::string_view device, std::string_view session,
                 const rtrs::request& r, storage::block_operation kind, const error& why) noexcept
{
    const char* const cure = cure_of(why);
    if (cure == nullptr)
        return;
    try {
        log_limited(counters.failures_logged, log_level::warning, "rnbd", "operation failed",
                    {{"device", device},
                     {"operation", to_string(kind)},
                     {"session", session},
                     {"call", trace_name(r.trace())},
                     {"cause", why.message()},
                     {"cure", cure}});
    } catch (const std::bad_alloc&) { // the count tells it
    }
}

// Nothing for an operation that is not offered.
std::optional<storage::block_operation> kind_of(operation o) noexcept
{
    switch (o) {
    case operation::read: return storage::block_operation::read;
    case operation::write: return storage::block_operation::write;
    case operation::flush: return storage::block_operation::flush;
    case operation::discard: return storage::block_operation::discard;
    case operation::write_zeroes: return storage::block_operation::write_zeroes;
    default: return std::nullopt;
    }
}

void described_io::describe(request_report& into) const noexcept
{
    into.protocol.clear();
    into.protocol.append("block");
    into.operation.clear();
    const auto kind = kind_of(message_.operation);
    into.operation.append(kind ? to_string(*kind) : std::string_view("unknown"));
    if (kind != storage::block_operation::flush)
        into.operation.append(" ").append(message_.bytes).append(" at sector ").append(message_.sector);
    into.object.append(device_);
}

counter* counter_of(server_stats& s, operation o) noexcept
{
    switch (o) {
    case operation::read: return &s.reads;
    case operation::write: return &s.writes;
    case operation::flush: return &s.flushes;
    case operation::discard: return &s.discards;
    case operation::write_zeroes: return &s.zeroes;
    default: return nullptr;
    }
}

bool is_change(operation o) noexcept { return o != operation::read && o != operation::flush; }

// It may be the shard that writes them.
constexpr std::uint32_t max_zeroes = 4 << 20;

// The room that `r` has for an answer, which the client must have offered.
template<std::size_t Size>
result<void> answer(rtrs::request& r, const std::array<std::byte, Size>& message)
{
    if (r.is_write() || r.data().size() < Size)
        return error(std::errc::invalid_argument, "a client that left no room for the answer",
                     r.data().size());
    std::ranges::copy(message, r.data().begin());
    r.produce(Size);
    return {};
}

} // namespace

// Clients that end give their devices back first. The end of a killed one's connections looks like any other.
void server_session::log_left_open(const open_device& d) noexcept
{
    try {
        log_limited(stats_.left_open_logged, log_level::info, "rnbd", "device taken back",
                    {{"session", who_.name},
                     {"device", owner_.devices_.at(d.in_table).name},
                     {"cause", "all paths of its session have ended, and its client had not closed it"},
                     {"reason", to_string(ended_)}});
    } catch (const std::bad_alloc&) {
    }
}

result<void> server_session::admits(std::size_t number, std::string_view address) const
{
    rtrs::session_info who = who_;
    who.peer_address = address;
    return device_table::admits(owner_.devices_.at(number), who, owner_.host_);
}

// A path reaches whatever the session has open, now and later: clients= goes for each one.
result<void> server_session::add_path(std::string_view peer_address)
{
    rtrs::session_info who = who_;
    who.peer_address = peer_address;
    if (!owner_.devices_.admits(who, owner_.host_)) {
        tell_refusal(refused::session_address, {.peer = peer_address, .object = who_.name});
        return error(std::errc::permission_denied, "no device is for a path from this address");
    }
    for (const auto& d : places_) {
        if (!d->is_in_use())
            continue;
        if (auto admitted = admits(d->in_table, peer_address); !admitted) {
            tell_refusal(refused::device_address,
                         {.peer = peer_address, .object = owner_.devices_.at(d->in_table).name});
            return admitted;
        }
    }
    paths_.emplace_back(peer_address);
    return {};
}

void server_session::remove_path(std::string_view peer_address, rtrs::path_end why) noexcept
{
    ended_ = why;
    const auto at = std::ranges::find(paths_, peer_address);
    if (at != paths_.end())
        paths_.erase(at);
}

// Operations run where they came. All else changes the session, or reads what others change, and goes home.
task<result<void>> server_session::serve(rtrs::request& r)
{
    message_bytes copied;
    const std::span<const std::byte> from(copied.data(), r.copy_user(copied));
    const auto type = type_of(from);
    if (!type)
        co_return type.error();
    if (*type == message::io) {
        const auto m = decode_io(from);
        if (!m)
            co_return m.error();
        co_return co_await io(*m, r);
    }
    const task_context& context = co_await current_context();
    if (home_ == nullptr || context.shard == home_)
        co_return co_await control(*type, from, r);
    const auto there = [this, kind = *type, from, &r] { return control(kind, from, r); };
    co_return co_await who_.home->run(there);
}

task<result<void>> server_session::control(message type, std::span<const std::byte> from, rtrs::request& r)
{
    switch (type) {
    case message::session_info: co_return tell_version(r, from);
    case message::open: co_return open(r, from);
    case message::close: {
        const auto device = decode_close(from);
        if (!device)
            co_return device.error();
        co_return co_await close(*device);
    }
    default:
        co_return error(std::errc::invalid_argument, "a message that servers do not take",
                        std::uint64_t(type));
    }
}

result<void> server_session::tell_version(rtrs::request& r, std::span<const std::byte> from)
{
    const auto asked = decode_session_info(message::session_info, from);
    if (!asked)
        return asked.error();
    return answer(r, encode_session_info(message::session_info_response, std::min(*asked, protocol_major),
                                         token_of_session_info(from)));
}

storage::block_backend& server_session::device_for_us(std::size_t number)
{
    storage::block_backend& all = *owner_.devices_.at(number).backend;
    auto found = ours_.find(number);
    if (found == ours_.end())
        found = ours_.emplace(number, all.for_client(client_)).first;
    return found->second ? *found->second : all;
}

result<open_device*> server_session::free_place()
{
    for (const auto& d : places_) {
        if (d->now() == open_device::state::closed)
            return d.get();
    }
    if (places_.size() == server::max_open_devices)
        return error(std::errc::too_many_files_open, "devices that a session may have open", places_.size());
    const auto number = static_cast<std::uint32_t>(places_.size());
    open_device::owner& self = *this;
    places_.push_back(std::make_shared<open_device>(self, number, home_));
    open_device& made = *places_.back();
    made.kept_by(places_.back());
    by_number_[number].store(&made, std::memory_order_release);
    return &made;
}

result<open_device*> server_session::open_place(const open_request& asked)
{
    for (const auto& d : places_) {
        if (d->now() == open_device::state::open && owner_.devices_.at(d->in_table).name == asked.device)
            return d.get(); // as it is open already
    }
    auto place = free_place();
    if (!place)
        return place;
    const auto number = owner_.devices_.open(asked.device, asked.mode, who_, owner_.host_);
    if (!number)
        return number.error();
    // Also where there is no memory for what follows.
    struct opened_in_table {
        opened_in_table(device_table& t, std::size_t n, access_mode m) noexcept : of(t), number(n), mode(m) {}
        opened_in_table(const opened_in_table&) = delete;
        ~opened_in_table()
        {
            if (!is_kept)
                of.close(number, mode);
        }
        device_table& of;
        const std::size_t number;
        const access_mode mode;
        bool is_kept = false;
    };
    opened_in_table in_table(owner_.devices_, *number, asked.mode);
    result<void> admitted;
    for (const std::string& path : paths_) {
        if (admitted)
            admitted = admits(*number, path);
    }
    if (!admitted)
        return admitted.error();
    const device_options& o = owner_.devices_.at(*number);
    open_device& d = **place;
    d.in_table = *number;
    d.mode = asked.mode;
    d.backend = &device_for_us(*number);
    d.read_only = o.read_only || asked.mode == access_mode::read_only;
    (void)stats_.by_device.of(*number, o.name); // its series begin here
    in_table.is_kept = true;
    d.open();
    return &d;
}

refused server_session::reason_of(const error& why, std::string_view device) const noexcept
{
    switch (why.errno_value()) {
    case ENOENT: return refused::device_unknown;
    case EROFS: return refused::device_read_only;
    case EPERM: return refused::device_in_use;
    case EMFILE: return refused::device_count;
    default: break;
    }
    for (std::size_t i = 0; i < owner_.devices_.size(); ++i) {
        const device_options& o = owner_.devices_.at(i);
        if (!owner_.devices_.is_removed(i) && o.name == device && !o.session.empty() &&
            o.session != who_.name)
            return refused::device_session;
    }
    return refused::device_address;
}

result<void> server_session::open(rtrs::request& r, std::span<const std::byte> from)
{
    const auto asked = decode_open(from);
    if (!asked)
        return asked.error();
    if (r.is_write() || r.data().size() < open_response_size)
        return error(std::errc::invalid_argument, "a client that left no room for the answer",
                     r.data().size());
    const auto opened = open_place(*asked);
    if (!opened) {
        stats_.refused_opens.add();
        count_refusal(stats_, opened.error());
        tell_refusal(reason_of(opened.error(), asked->device),
                     {.peer = who_.peer_address, .object = asked->device, .said = who_.name});
        return opened.error();
    }
    stats_.opens.add();
    const storage::block_properties p = (*opened)->backend->properties();
    constexpr std::uint32_t most = UINT32_MAX / sector_size; // as requests count bytes in 32 bits
    open_response told;
    told.device = (*opened)->number;
    told.sectors = p.size / sector_size;
    told.max_sectors = who_.max_io_size / sector_size;
    told.max_segments = 128;
    told.physical_block_size = static_cast<std::uint16_t>(p.physical_block_size);
    told.logical_block_size = static_cast<std::uint16_t>(p.block_size);
    if (p.discard_granularity != 0) {
        told.max_discard_sectors = most;
        told.discard_granularity = p.discard_granularity;
    }
    if (p.write_zeroes)
        told.max_write_zeroes_sectors = max_zeroes / sector_size;
    told.write_back = p.write_back;
    told.fua = p.write_back;
    told.run = p.run;
    log_limited(stats_.opens_logged, log_level::info, "rnbd", "device opened",
                {{"session", who_.name}, {"device", asked->device}});
    return answer(r, encode(told));
}

// As kernels have it, a device that is not open is no error. Operations under way must not reach a device that another client has
// opened meanwhile: the last of them gives the device up. The answer waits for that, but no longer than the patience, since clients send one
// service message at a time.
task<result<void>> server_session::close(std::uint32_t device)
{
    if (device >= places_.size() || places_[device]->now() == open_device::state::closed)
        co_return result<void>();
    open_device& d = *places_[device];
    if (d.now() == open_device::state::taken) {
        d.free_number();
        co_return result<void>();
    }
    d.takes_away = false;
    if (d.begin_close()) {
        unused(d);
        co_return result<void>();
    }
    const auto over = co_await with_timeout(server::close_patience, closed(d));
    if (!over && over.error() == std::errc::timed_out)
        co_return error(std::errc::device_or_resource_busy, "operations on the device are under way", device);
    co_return over;
}

task<result<void>> server_session::closed(open_device& d)
{
    const bool over = co_await d.closed.wait();
    if (!over)
        co_return error(std::errc::operation_canceled, "the path of a CLOSE has ended");
    co_return result<void>();
}

void server_session::unused(open_device& d) noexcept
{
    const std::size_t number = d.in_table;
    d.end_close();
    if (owner_.devices_.is_removed(number))
        forget_removed(); // before the back end goes, but not beneath another place of the session
    owner_.devices_.close(number, d.mode);
}

bool server_session::may_have(const open_device& d) const
{
    if (owner_.devices_.is_removed(d.in_table) ||
        (d.mode != access_mode::read_only && owner_.devices_.at(d.in_table).read_only))
        return false;
    return std::ranges::all_of(paths_,
                               [&](const std::string& path) { return admits(d.in_table, path).has_value(); });
}

// Of devices that it has had open, and that nobody uses by it now.
void server_session::forget_removed() noexcept
{
    std::erase_if(ours_, [this](const auto& one) {
        return owner_.devices_.is_removed(one.first) && std::ranges::none_of(places_, [&](const auto& d) {
                   return d->is_in_use() && d->in_table == one.first;
               });
    });
}

void server_session::look_again() noexcept
{
    for (const auto& d : places_) {
        if (d->now() != open_device::state::open || may_have(*d))
            continue;
        d->takes_away = true;
        try {
            log(log_level::warning, "rnbd", "a device is taken from a session",
                {{"session", who_.name},
                 {"device", owner_.devices_.at(d->in_table).name},
                 {"cause", "the configuration does not give it to this session any more"}});
        } catch (const std::bad_alloc&) {
        }
        if (d->begin_close())
            unused(*d);
    }
    forget_removed();
}

void server::look_again() noexcept
{
    for (session_link* one = sessions_.front(); one != nullptr; one = sessions_.next(*one))
        one->session.look_again();
}

// Discard and write zeroes. Back ends know no FUA of these: they are flushed.
task<result<void>> server_session::clear(const open_device& d, std::uint64_t offset, const io_request& m)
{
    result<void> done;
    if (m.operation == operation::discard)
        done = co_await d.backend->discard(offset, m.bytes);
    else if (m.bytes > max_zeroes)
        done = error(std::errc::invalid_argument, "more zeroes at once than was offered", m.bytes);
    else
        done = co_await d.backend->write_zeroes(offset, m.bytes, (m.flags & flag_no_unmap) != 0);
    if (done && (m.flags & flag_fua) != 0)
        done = co_await d.backend->flush();
    co_return done;
}

task<result<void>> server_session::perform(const open_device& d, const io_request& m, rtrs::request& r)
{
    const std::uint64_t offset = m.sector * sector_size;
    // What was acknowledged before is on stable storage before this begins.
    if (is_change(m.operation) && (m.flags & flag_preflush) != 0) {
        auto flushed = co_await d.backend->flush();
        if (!flushed || m.bytes == 0)
            co_return flushed;
    }
    switch (m.operation) {
    case operation::read: {
        if (r.is_write() || m.bytes > r.data().size())
            co_return error(std::errc::invalid_argument, "a read of more bytes than there is room for",
                            m.bytes);
        auto done = co_await d.backend->read(offset, r.data().first(m.bytes));
        if (done)
            r.produce(m.bytes);
        co_return done;
    }
    case operation::write:
        if (!r.is_write() || m.bytes > r.data().size())
            co_return error(std::errc::invalid_argument, "a write of more bytes than came", m.bytes);
        co_return co_await d.backend->write(offset, r.data().first(m.bytes), (m.flags & flag_fua) != 0);
    case operation::flush: co_return co_await d.backend->flush();
    case operation::discard:
    case operation::write_zeroes: co_return co_await clear(d, offset, m);
    default:
        co_return error(std::errc::operation_not_supported, "an operation that is not offered",
                        std::uint64_t(m.operation));
    }
}

task<result<void>> server_session::io(const io_request& m, rtrs::request& r)
{
    open_device* const place =
        m.device < by_number_.size() ? by_number_[m.device].load(std::memory_order_acquire) : nullptr;
    if (place == nullptr)
        co_return error(std::errc::not_connected, "a device that is not open", m.device);
    reactor& here = *(co_await current_context()).shard;
    const open_device::use used(*place, here);
    if (!used)
        co_return error(std::errc::not_connected, "a device that is not open", m.device);
    const open_device& d = *place;
    // A flush has no place: kernels say sector -1 in it.
    if (m.operation != operation::flush && m.sector > UINT64_MAX / sector_size - UINT32_MAX)
        co_return error(std::errc::invalid_argument, "a sector beyond the end of the device", m.sector);
    server_stats& stats = owner_.stats_of(here);
    device_counters& counters = stats.by_device.of(d.in_table, owner_.devices_.at(d.in_table).name);
    const clock_source& clock = here.clock();
    const time_point began = clock.now();
    const under_way counted(counters.in_flight);
    described_io described(r, m, counters.name);
    result<void> done = error(std::errc::read_only_file_system, "the device is open to read");
    if (!d.read_only || !is_change(m.operation)) {
        if (counter* const all = counter_of(stats, m.operation))
            all->add();
        done = co_await perform(d, m, r);
    }
    if (const auto kind = kind_of(m.operation)) {
        counters.operations[std::size_t(*kind)].add();
        counters.latency[std::size_t(*kind)].observe(
            static_cast<std::uint64_t>((clock.now() - began).count()));
    }
    if (done)
        described.ended("ok");
    if (!done) {
        stats.failed.add();
        counters.failed[std::size_t(failure_of(done.error()))].add();
        described.ended(to_string(failure_of(done.error())));
        if (const auto kind = kind_of(m.operation))
            log_failure(counters, owner_.devices_.at(d.in_table).name, who_.name, r, *kind, done.error());
    } else if (m.operation == operation::read) {
        stats.read_bytes.add(m.bytes);
        counters.read_bytes.add(m.bytes);
    } else if (m.operation == operation::write) {
        stats.written_bytes.add(m.bytes);
        counters.written_bytes.add(m.bytes);
    }
    co_return done;
}

result<std::unique_ptr<rtrs::session_handler>> server::open(const rtrs::session_info& s)
{
    if (!devices_.admits(s, host_)) {
        tell_refusal(refused::session_address, {.peer = s.peer_address, .object = s.name});
        return error(std::errc::permission_denied, "no device is for this client");
    }
    return std::unique_ptr<rtrs::session_handler>(std::make_unique<server_session>(*this, s));
}

} // namespace verbena::rnbd
