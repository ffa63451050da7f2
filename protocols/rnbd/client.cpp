// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/rnbd/client.hpp>

#include <verbena/core/log.hpp>
#include <verbena/core/task/combine.hpp>
#include <verbena/core/task/sleep.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>

namespace verbena::rnbd {

namespace {

// is_loss() knows it by its place.
constexpr char lost[] = "the server began anew, and may have lost changes that it had answered and not "
                        "flushed: write again what was "
                        "written since the last flush that succeeded";

std::uint64_t draw_token(random_source& random) noexcept
{
    std::uint64_t drawn = 0;
    while (drawn == 0)
        drawn = random.draw();
    return drawn;
}

} // namespace

bool is_loss(const error& e) noexcept { return e.context() == lost; }

device::device(client& owner, std::string name, access_mode mode, const open_response& told)
    : owner_(owner), session_(owner.session_), id_(owner.next_id_++), name_(std::move(name)), mode_(mode)
{
    take(told);
    owner_.devices_.push_back(this);
}

device::~device() { std::erase(owner_.devices_, this); }

void device::take(const open_response& told) noexcept
{
    number_ = told.device;
    run_ = told.run;
    properties_.size = told.sectors * sector_size;
    properties_.block_size = told.logical_block_size;
    properties_.physical_block_size = told.physical_block_size;
    properties_.discard_granularity =
        told.max_discard_sectors != 0 ? std::max(told.discard_granularity, 1u) : 0;
    properties_.write_zeroes = told.max_write_zeroes_sectors != 0;
    properties_.read_only = mode_ == access_mode::read_only;
    properties_.write_back = told.write_back;
    const auto bytes = [](std::uint32_t sectors) {
        return static_cast<std::uint32_t>(
            std::min<std::uint64_t>(std::uint64_t(sectors) * sector_size, UINT32_MAX & ~0xfffu));
    };
    max_discard_ = bytes(told.max_discard_sectors);
    max_zeroes_ = bytes(told.max_write_zeroes_sectors);
}

// The session has begun anew, and answers to requests come from there from now on.
void device::take_again(const open_response& told) noexcept
{
    // A server that starts again knows nothing of a sync that failed before: fileblk's run is that of its host, and the
    // next fdatasync succeeds over what is gone.
    const bool same = told.run != 0 && told.run == run_ && failed_syncs_ == settled_;
    // What a device without a cache has answered stays, unless it lives in memory: such a device names its runs.
    const bool lived_with_its_run = changed_ && !properties_.write_back && run_ != 0;
    if (!same && (answered_ != flushed_ || lived_with_its_run)) {
        flushed_ = answered_;
        lose();
    }
    if (!same) {
        changed_ = false;
        ++runs_;
    }
    settled_ = failed_syncs_;
    ++openings_;
    open_ = result<void>();
    given_away_ = false;
    take(told);
}

void device::lose() noexcept
{
    ++losses_;
    log(log_level::error, "rnbd",
        "the server began anew, and can't show that it has what it answered: the next flush fails",
        {{"device", name_}});
}

// It was answered.
void device::count(operation what, std::uint32_t flags) noexcept
{
    if (what == operation::read || what == operation::flush)
        return;
    changed_ = true;
    if (properties_.write_back && (flags & flag_fua) == 0)
        ++answered_;
}

// With the number that the device has in the session as it is then. All that RNBD has may be done twice.
class device::header final : public rtrs::client::header {
public:
    header(const device& d, const io_request& m) noexcept : device_(d), message_(m) {}
    result<std::size_t> write(std::span<std::byte> into) noexcept override
    {
        if (!device_.open_)
            return device_.open_.error();
        if (device_.number_ == no_number)
            return error(std::errc::not_connected, "the device is not open in this session");
        message_.device = device_.number_;
        runs_ = device_.runs_;
        openings_ = device_.openings_;
        stays_ = device_.properties_.write_back ? (message_.flags & flag_fua) != 0 : device_.run_ == 0;
        const auto bytes = encode(message_);
        std::ranges::copy(bytes, into.begin());
        return bytes.size();
    }
    // Of the request as it was sent last: in which run, and whether a change that was answered outlives that run.
    std::uint64_t runs() const noexcept { return runs_; }
    std::uint64_t openings() const noexcept { return openings_; }
    bool stays() const noexcept { return stays_; }

private:
    const device& device_;
    io_request message_;
    std::uint64_t runs_ = 0;
    std::uint64_t openings_ = 0;
    bool stays_ = false;
};

// A flush, or a write through. Without room such a write has lost nothing.
void device::sync_failed(const header& sent, operation what, const error& why) noexcept
{
    const bool harmless =
        what == operation::write && (why == std::errc::no_space_on_device || why.errno_value() == EDQUOT);
    // In a run that has ended what it lost was counted.
    if (!rtrs::is_answer(why) || harmless || !properties_.write_back || sent.runs() != runs_)
        return;
    if (sent.openings() == openings_) {
        ++failed_syncs_; // take_again() looks
        return;
    }
    // It is heard of late. The device has been opened again as the same, and flushes may have succeeded there.
    flushed_ = answered_;
    ++runs_;
    lose();
}

// As kernels send it, a flush counts as a read.
task<result<void>> device::send(operation what, io_request m, std::span<std::byte> bytes)
{
    header message(*this, m);
    const bool syncs = (m.flags & flag_fua) != 0;
    if (what == operation::read || what == operation::flush) {
        const auto got = co_await session_.read(message, bytes);
        if (!got && syncs)
            sync_failed(message, what, got.error());
        co_return got;
    }
    const auto done = co_await session_.write(message, bytes);
    if (!done) {
        if (syncs)
            sync_failed(message, what, done.error());
        co_return done;
    }
    // A path that breaks may keep an answer back until the device has been opened again.
    if (message.runs() == runs_)
        count(what, m.flags);
    else if (!message.stays())
        lose();
    co_return done;
}

task<result<void>> device::move_piece(operation what, std::uint32_t flags, std::uint64_t offset,
                                      std::span<std::byte> bytes)
{
    io_request m;
    m.sector = offset / sector_size;
    m.operation = what;
    m.flags = flags;
    m.bytes = static_cast<std::uint32_t>(bytes.size());
    return send(what, m, bytes);
}

task<result<void>> device::move(operation what, std::uint32_t flags, std::uint64_t offset,
                                std::span<std::byte> bytes)
{
    const auto good = check_range(properties_, offset, bytes.size(), what != operation::read);
    if (!good || bytes.empty())
        co_return good;
    const std::size_t most = session_.max_io_size() / properties_.block_size * properties_.block_size;
    if (bytes.size() <= most)
        co_return co_await move_piece(what, flags, offset, bytes);
    std::vector<task<result<void>>> pieces;
    for (std::size_t at = 0; at < bytes.size(); at += most)
        pieces.push_back(
            move_piece(what, flags, offset + at, bytes.subspan(at, std::min(most, bytes.size() - at))));
    const auto all = co_await when_all(std::move(pieces));
    for (const auto& one : all) {
        if (!one)
            co_return one;
    }
    co_return result<void>();
}

task<result<void>> device::command(operation what, std::uint32_t flags, std::uint64_t offset,
                                   std::uint64_t length)
{
    const auto good = check_range(properties_, offset, length, what != operation::flush);
    if (!good || (length == 0 && what != operation::flush))
        co_return good;
    const std::uint64_t most = what == operation::discard        ? max_discard_
                               : what == operation::write_zeroes ? max_zeroes_
                                                                 : 1;
    if (most == 0)
        co_return error(std::errc::operation_not_supported, "the device has no such operation");
    do {
        io_request m;
        m.sector = offset / sector_size;
        m.operation = what;
        m.flags = flags;
        m.bytes = static_cast<std::uint32_t>(std::min(length, most));
        const auto done = co_await send(what, m, {});
        if (!done)
            co_return done;
        offset += m.bytes;
        length -= m.bytes;
    } while (length != 0);
    co_return result<void>();
}

task<result<void>> device::read(std::uint64_t offset, std::span<std::byte> into)
{
    return move(operation::read, flag_sync, offset, into);
}

task<result<void>> device::write(std::uint64_t offset, std::span<const std::byte> from, bool through)
{
    // Only read.
    return move(operation::write, through ? flag_sync | flag_fua : flag_sync, offset,
                {const_cast<std::byte*>(from.data()), from.size()});
}

task<result<void>> device::flush()
{
    const auto done = co_await flush(told_);
    if (!done && is_loss(done.error()))
        told_ = losses_;
    co_return done;
}

task<result<void>> device::flush(std::uint64_t known)
{
    if (losses_ > known)
        co_return error(std::errc::io_error, lost);
    const std::uint64_t before = answered_;
    const std::uint64_t failed = failed_syncs_;
    const auto done = co_await command(operation::flush, flag_sync | flag_fua, 0, 0);
    if (!done)
        co_return done;
    flushed_ = std::max(flushed_, before);
    settled_ = std::max(settled_, failed);
    // It may have been sent again to a server that knows nothing of what was written before.
    if (losses_ > known)
        co_return error(std::errc::io_error, lost);
    co_return done;
}

task<result<void>> device::discard(std::uint64_t offset, std::uint64_t length)
{
    return command(operation::discard, 0, offset, length);
}

task<result<void>> device::write_zeroes(std::uint64_t offset, std::uint64_t length, bool keep)
{
    return command(operation::write_zeroes, keep ? flag_no_unmap : 0, offset, length);
}

task<result<void>> client::begin()
{
    const std::uint64_t session = sessions_;
    const auto greeted = co_await greet();
    if (!greeted)
        co_return greeted.error();
    if (session == sessions_) // else reopen() asks too
        tells_runs_ = *greeted;
    co_return result<void>();
}

// Yields whether the server tells runs of its devices. One that does not leaves there what the memory held before, which may be the same twice.
task<result<bool>> client::greet()
{
    std::array<std::byte, session_info_size> answer{};
    const task_context& context = co_await current_context();
    const std::uint64_t token = draw_token(context.shard->random());
    const auto message = encode_session_info(message::session_info, protocol_major, token);
    auto done = co_await session_.read(message, answer, rtrs::client::lane::service);
    if (!done)
        co_return done.error();
    const auto major = decode_session_info(message::session_info_response, answer);
    if (!major)
        co_return major.error();
    if (*major != protocol_major)
        co_return error(std::errc::protocol_not_supported, "the server speaks another version of RNBD",
                        *major);
    co_return token_of_session_info(answer) == token;
}

client::client(rtrs::client& session) : session_(session)
{
    session_.on_restart([this] { return reopen(); });
}

client::~client() { session_.on_restart({}); }

device* client::find(std::uint64_t id) const noexcept
{
    const auto found = std::ranges::find(devices_, id, [](const device* d) { return d->id_; });
    return found == devices_.end() ? nullptr : *found;
}

// An OPEN, and in which session it was sent last.
class client::opening final : public rtrs::client::header {
public:
    opening(const client& owner, const open_request& asked) noexcept : owner_(owner), asked_(asked) {}
    result<std::size_t> write(std::span<std::byte> into) noexcept override
    {
        session_ = owner_.sessions_;
        const auto bytes = encode(asked_);
        std::ranges::copy(bytes, into.begin());
        return bytes.size();
    }
    std::uint64_t session() const noexcept { return session_; }

private:
    const client& owner_;
    const open_request& asked_;
    std::uint64_t session_ = 0;
};

// What it yields is of the session as it is now. A path that breaks may keep an answer back until the next session has begun.
task<result<open_response>> client::ask(const open_request& asked)
{
    opening message(*this, asked);
    std::array<std::byte, open_response_size> answer{};
    do {
        const auto done = co_await session_.read(message, answer, rtrs::client::lane::service);
        if (!done)
            co_return done.error();
    } while (message.session() != sessions_);
    auto told = decode_open_response(answer);
    if (told) {
        if (!tells_runs_)
            told->run = 0;
        const std::uint32_t block = told->logical_block_size;
        if (!std::has_single_bit(block) || block < sector_size || block > 4096 ||
            block > session_.max_io_size())
            co_return error(std::errc::protocol_error,
                            "blocks of a device have 512 to 4096 bytes, a power of two", block);
    }
    co_return told;
}

task<result<std::unique_ptr<device>>> client::open(std::string_view name, access_mode mode)
{
    if (name.empty() || name.size() > max_device_name)
        co_return error(std::errc::invalid_argument, "a device's name has 1 to 254 bytes", name.size());
    open_request asked;
    asked.mode = mode;
    asked.device = name;
    const auto told = co_await ask(asked);
    if (!told)
        co_return told.error();
    co_return std::unique_ptr<device>(new device(*this, std::move(asked.device), mode, *told));
}

// The session knows no device of ours any more, and gives out other numbers: nothing may use the old ones.
task<void> client::reopen()
{
    const std::uint64_t session = ++sessions_;
    tells_runs_ = false;
    std::vector<std::uint64_t> all;
    all.reserve(devices_.size());
    for (device* d : devices_) {
        d->number_ = device::no_number;
        all.push_back(d->id_);
    }
    const auto begun = co_await greet();
    if (session != sessions_)
        co_return; // there is another reopen()
    tells_runs_ = begun && *begun;
    for (const std::uint64_t id : all) {
        device* d = find(id);
        if (d == nullptr)
            continue; // closed while others were opened
        if (!begun) {
            d->open_ = begun.error();
            continue;
        }
        if (d->given_away_)
            continue; // begin_anew() alone opens it
        open_request asked;
        asked.mode = d->mode_;
        asked.device = d->name_;
        const auto told = co_await ask_patiently(asked, id);
        d = find(id);
        if (d == nullptr) { // closed meanwhile, by nobody but us: the number came too late for a CLOSE
            if (told) {
                std::unique_ptr<device> late(new device(*this, std::move(asked.device), asked.mode, *told));
                (void)co_await close(std::move(late));
            }
        } else if (session == sessions_) {
            d->open_again(told);
        }
        if (session != sessions_)
            co_return;
    }
}

// While somebody else has the device: our own last session, perhaps.
task<result<open_response>> client::ask_patiently(const open_request& asked, std::uint64_t id)
{
    constexpr auto step = std::chrono::milliseconds(500);
    const std::uint64_t session = sessions_;
    for (duration waited{};; waited += step) {
        const auto told = co_await ask(asked);
        if (told || told.error() != std::errc::operation_not_permitted || waited >= reopen_patience)
            co_return told;
        const bool slept = co_await sleep_for(step);
        if (!slept || session != sessions_ || find(id) == nullptr)
            co_return told;
    }
}

void device::open_again(const result<open_response>& told) noexcept
{
    if (!told) {
        open_ = told.error();
        given_away_ = told.error() == std::errc::operation_not_permitted;
    } else if (told->sectors * sector_size < properties_.size ||
               told->logical_block_size != properties_.block_size) {
        number_ = told->device; // for its CLOSE
        open_ =
            error(std::errc(ESTALE), "the device is another one than before: smaller, or with other blocks");
    } else {
        take_again(*told);
    }
}

task<result<void>> device::begin_anew()
{
    open_request asked;
    asked.mode = mode_;
    asked.device = name_;
    while (!usable()) {
        const std::uint64_t session = owner_.sessions_;
        const auto told = co_await owner_.ask(asked);
        if (!told)
            co_return told.error();
        // Else the session began anew meanwhile, and reopen() has asked whether its server tells runs.
        if (session == owner_.sessions_)
            take_again(*told);
    }
    co_return result<void>();
}

// A CLOSE with the number that the device has when it is sent. There may be none by then, or another device that is open has the same: it was
// opened twice.
class device::farewell final : public rtrs::client::header {
public:
    explicit farewell(const device& d) noexcept : device_(d) {}
    result<std::size_t> write(std::span<std::byte> into) noexcept override
    {
        needless_ = is_needless();
        if (needless_)
            return error(std::errc::not_connected, "the device is not open in this session");
        const auto bytes = encode_close(device_.number_);
        std::ranges::copy(bytes, into.begin());
        return bytes.size();
    }
    bool is_needless() const noexcept
    {
        return device_.number_ == no_number ||
               std::ranges::any_of(device_.owner_.devices_, [&](const device* d) {
                   return d != &device_ && d->number_ == device_.number_;
               });
    }
    bool was_needless() const noexcept { return needless_; }

private:
    const device& device_;
    bool needless_ = false;
};

task<result<void>> client::close(std::unique_ptr<device> d)
{
    device::farewell message(*d);
    if (message.is_needless())
        co_return result<void>();
    const auto done = co_await session_.write(message, {}, rtrs::client::lane::service);
    // EBUSY: operations are under way there, the last of which closes it.
    if (message.was_needless() || (!done && done.error() == std::errc::device_or_resource_busy))
        co_return result<void>();
    co_return done;
}

} // namespace verbena::rnbd
