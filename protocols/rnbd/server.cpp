// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/rnbd/server.hpp>

#include <verbena/core/reactor/clock.hpp>
#include <verbena/core/reactor/reactor.hpp>
#include <verbena/core/task/combine.hpp>
#include <verbena/core/task/event.hpp>
#include <verbena/protocols/storage/block_operation.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <map>
#include <optional>
#include <string>

namespace verbena::rnbd {

class server_session final : public rtrs::session_handler {
public:
    server_session(server& owner, const rtrs::session_info& who)
        : owner_(owner), who_(who), client_(std::string(who.peer_address) + ' ' + std::string(who.name))
    {
    }
    ~server_session() override
    {
        for (const auto& d : open_) {
            if (d)
                owner_.devices_.close(d->number, d->mode);
        }
    }
    result<void> add_path(std::string_view peer_address) override;
    void remove_path(std::string_view peer_address) noexcept override;
    task<result<void>> serve(rtrs::request& r) override;

private:
    struct opened {
        std::size_t number; // in the table
        access_mode mode;
        storage::block_backend* backend;
        bool read_only;
        device_counters* counters;
        std::size_t under_way = 0; // operations
        bool closing = false;      // no more begin
        event closed;              // others may open it
    };
    // An operation on an open device, which stays open for as long as this lives.
    class use {
    public:
        use(server_session& s, std::uint32_t device) noexcept : session_(s), device_(device)
        {
            ++get().under_way;
        }
        use(const use&) = delete;
        ~use()
        {
            if (--get().under_way == 0 && get().closing)
                session_.give_up(device_);
        }
        opened& get() const noexcept { return *session_.open_[device_]; }

    private:
        server_session& session_;
        const std::uint32_t device_;
    };
    result<void> tell_version(rtrs::request& r, std::span<const std::byte> message);
    result<void> open(rtrs::request& r, std::span<const std::byte> message);
    result<std::uint32_t> open_number(const open_request& asked);
    result<void> admits(std::size_t number, std::string_view address) const;
    storage::block_backend& device_for_us(std::size_t number);
    bool is_open(std::uint32_t device) const noexcept
    {
        return device < open_.size() && open_[device] && !open_[device]->closing;
    }
    task<result<void>> close(std::uint32_t device);
    static task<result<void>> closed(std::shared_ptr<opened> d);
    void give_up(std::uint32_t device) noexcept;
    task<result<void>> io(const io_request& m, rtrs::request& r);
    task<result<void>> perform(const opened& d, const io_request& m, rtrs::request& r);
    task<result<void>> clear(const opened& d, std::uint64_t offset, const io_request& m);

    server& owner_;
    const rtrs::session_info who_;
    const std::string client_;       // as filters tell it from others
    std::vector<std::string> paths_; // their addresses: each may use what is open
    // Of devices that look different to each client, by their number in the table. They stay when the device is closed, as requests may
    // be under way then; so each is made once.
    std::map<std::size_t, std::unique_ptr<storage::block_backend>> ours_;
    std::vector<std::shared_ptr<opened>> open_; // by their number in the session
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
    if (!owner_.devices_.admits(who, owner_.host_))
        return error(std::errc::permission_denied, "no device is for a path from this address");
    for (const auto& d : open_) {
        if (!d)
            continue;
        if (auto admitted = admits(d->number, peer_address); !admitted)
            return admitted;
    }
    paths_.emplace_back(peer_address);
    return {};
}

void server_session::remove_path(std::string_view peer_address) noexcept
{
    const auto at = std::ranges::find(paths_, peer_address);
    if (at != paths_.end())
        paths_.erase(at);
}

task<result<void>> server_session::serve(rtrs::request& r)
{
    std::array<std::byte, open_size> copied; // of the largest message
    const std::span<const std::byte> message(copied.data(), r.copy_user(copied));
    const auto type = type_of(message);
    if (!type)
        co_return type.error();
    switch (*type) {
    case message::io: {
        const auto m = decode_io(message);
        if (!m)
            co_return m.error();
        co_return co_await io(*m, r);
    }
    case message::session_info: co_return tell_version(r, message);
    case message::open: co_return open(r, message);
    case message::close: {
        const auto device = decode_close(message);
        if (!device)
            co_return device.error();
        co_return co_await close(*device);
    }
    default:
        co_return error(std::errc::invalid_argument, "a message that servers do not take",
                        std::uint64_t(*type));
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

result<std::uint32_t> server_session::open_number(const open_request& asked)
{
    for (std::uint32_t i = 0; i < open_.size(); ++i) {
        if (is_open(i) && owner_.devices_.at(open_[i]->number).name == asked.device)
            return i; // as it is open already
    }
    auto place = std::ranges::find_if(open_, [](const auto& d) { return !d; });
    if (place == open_.end() && open_.size() == server::max_open_devices)
        return error(std::errc::too_many_files_open, "devices that a session may have open", open_.size());
    const auto number = owner_.devices_.open(asked.device, asked.mode, who_, owner_.host_);
    if (!number)
        return number.error();
    for (const std::string& path : paths_) {
        if (const auto admitted = admits(*number, path); !admitted) {
            owner_.devices_.close(*number, asked.mode);
            return admitted.error();
        }
    }
    const device_options& d = owner_.devices_.at(*number);
    if (place == open_.end())
        place = open_.insert(place, nullptr);
    *place = std::make_shared<opened>(*number, asked.mode, &device_for_us(*number),
                                      d.read_only || asked.mode == access_mode::read_only,
                                      &owner_.stats_.by_device.of(*number, d.name));
    return static_cast<std::uint32_t>(place - open_.begin());
}

result<void> server_session::open(rtrs::request& r, std::span<const std::byte> from)
{
    const auto asked = decode_open(from);
    if (!asked)
        return asked.error();
    if (r.is_write() || r.data().size() < open_response_size)
        return error(std::errc::invalid_argument, "a client that left no room for the answer",
                     r.data().size());
    const auto opened = open_number(*asked);
    if (!opened) {
        owner_.stats_.refused_opens.add();
        count_refusal(owner_.stats_, opened.error());
        log_limited(owner_.stats_.opens_logged, log_level::info, "rnbd", "open refused",
                    {{"session", who_.name}, {"device", asked->device}, {"cause", opened.error().message()}});
        return opened.error();
    }
    owner_.stats_.opens.add();
    const storage::block_properties p = open_[*opened]->backend->properties();
    constexpr std::uint32_t most = UINT32_MAX / sector_size; // as requests count bytes in 32 bits
    open_response told;
    told.device = *opened;
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
    log_limited(owner_.stats_.opens_logged, log_level::info, "rnbd", "device opened",
                {{"session", who_.name}, {"device", asked->device}});
    return answer(r, encode(told));
}

// As kernels have it, a device that is not open is no error. Operations under way must not reach a device that another client has
// opened meanwhile: the last of them gives the device up. The answer waits for that, but no longer than the patience, since clients send one
// service message at a time.
task<result<void>> server_session::close(std::uint32_t device)
{
    if (device >= open_.size() || !open_[device])
        co_return result<void>();
    const std::shared_ptr<opened> d =
        open_[device]; // `device` may be another's number before the wait is over
    d->closing = true;
    if (d->under_way == 0) {
        give_up(device);
        co_return result<void>();
    }
    const auto over = co_await with_timeout(server::close_patience, closed(d));
    if (!over && over.error() == std::errc::timed_out)
        co_return error(std::errc::device_or_resource_busy, "operations on the device are under way", device);
    co_return over;
}

task<result<void>> server_session::closed(std::shared_ptr<opened> d)
{
    const bool over = co_await d->closed.wait();
    if (!over)
        co_return error(std::errc::operation_canceled, "the path of a CLOSE has ended");
    co_return result<void>();
}

void server_session::give_up(std::uint32_t device) noexcept
{
    const std::shared_ptr<opened> d = std::move(open_[device]);
    owner_.devices_.close(d->number, d->mode);
    d->closed.set();
}

// Discard and write zeroes. Back ends know no FUA of these: they are flushed.
task<result<void>> server_session::clear(const opened& d, std::uint64_t offset, const io_request& m)
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

task<result<void>> server_session::perform(const opened& d, const io_request& m, rtrs::request& r)
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
    if (!is_open(m.device))
        co_return error(std::errc::not_connected, "a device that is not open", m.device);
    const use used(*this, m.device);
    const opened& d = used.get();
    // A flush has no place: kernels say sector -1 in it.
    if (m.operation != operation::flush && m.sector > UINT64_MAX / sector_size - UINT32_MAX)
        co_return error(std::errc::invalid_argument, "a sector beyond the end of the device", m.sector);
    server_stats& stats = owner_.stats_;
    device_counters& counters = *d.counters;
    const clock_source& clock = (co_await current_context()).shard->clock();
    const time_point began = clock.now();
    const under_way counted(counters.in_flight);
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
    if (!done) {
        stats.failed.add();
        counters.failed[std::size_t(failure_of(done.error()))].add();
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
    if (!devices_.admits(s, host_))
        return error(std::errc::permission_denied, "no device is for this client");
    return std::unique_ptr<rtrs::session_handler>(std::make_unique<server_session>(*this, s));
}

} // namespace verbena::rnbd
