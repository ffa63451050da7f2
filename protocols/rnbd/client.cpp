// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/rnbd/client.hpp>

#include <verbena/core/combine.hpp>
#include <verbena/core/log.hpp>
#include <verbena/core/sleep.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <random>

namespace verbena::rnbd {

namespace {

// is_loss() knows it by its place.
constexpr char lost[] = "the server began anew, and may have lost changes that it had answered and not "
                        "flushed: write again what was "
                        "written since the last flush that succeeded";

std::uint64_t draw_token()
{
    std::random_device random;
    std::uint64_t drawn = 0;
    while (drawn == 0)
        drawn = std::uint64_t(random()) << 32 | random();
    return drawn;
}

} // namespace

bool is_loss(const error& e) noexcept { return e.context() == lost; }

device::device(client& owner, std::string name, access_mode mode, const open_response& told)
    : owner_(owner), session_(owner.session_), name_(std::move(name)), mode_(mode)
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
    const bool same = told.run != 0 && told.run == run_;
    // What a device without a cache has answered stays, unless it lives in memory: such a device names its runs.
    const bool lived_with_its_run = changed_ && !properties_.write_back && run_ != 0;
    if (!same && (answered_ != flushed_ || lived_with_its_run)) {
        ++losses_;
        flushed_ = answered_;
        changed_ = false;
        log(log_level::error, "rnbd",
            "the server began anew, and can't show that it has what it answered: the next flush fails",
            {{"device", name_}, {"run", told.run != 0 ? "another" : "not told"}});
    }
    open_ = result<void>();
    take(told);
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
        message_.device = device_.number_;
        const auto bytes = encode(message_);
        std::ranges::copy(bytes, into.begin());
        return bytes.size();
    }

private:
    const device& device_;
    io_request message_;
};

// As kernels send it, a flush counts as a read.
task<result<void>> device::send(operation what, io_request m, std::span<std::byte> bytes)
{
    header message(*this, m);
    if (what == operation::read || what == operation::flush)
        co_return co_await session_.read(message, bytes);
    const auto done = co_await session_.write(message, bytes);
    if (done)
        count(what, m.flags);
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
    const auto done = co_await command(operation::flush, flag_sync | flag_fua, 0, 0);
    if (!done)
        co_return done;
    flushed_ = std::max(flushed_, before);
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
    const auto greeted = co_await greet();
    if (!greeted)
        co_return greeted.error();
    tells_runs_ = *greeted;
    co_return result<void>();
}

// Yields whether the server tells runs of its devices. One that does not leaves there what the memory held before, which may be the same twice.
task<result<bool>> client::greet()
{
    std::array<std::byte, session_info_size> answer{};
    const std::uint64_t token = draw_token();
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

task<result<open_response>> client::ask(const open_request& asked, bool tells_runs)
{
    const auto message = encode(asked);
    std::array<std::byte, open_response_size> answer{};
    const auto done = co_await session_.read(message, answer, rtrs::client::lane::service);
    if (!done)
        co_return done.error();
    auto told = decode_open_response(answer);
    if (told) {
        if (!tells_runs)
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
    const auto told = co_await ask(asked, tells_runs_);
    if (!told)
        co_return told.error();
    co_return std::unique_ptr<device>(new device(*this, std::move(asked.device), mode, *told));
}

// The session knows no device of ours any more, and gives out other numbers.
task<void> client::reopen()
{
    const auto begun = co_await greet();
    if (begun)
        tells_runs_ = *begun;
    const std::vector<device*> all = devices_;
    for (device* d : all) {
        if (std::ranges::find(devices_, d) == devices_.end())
            continue; // closed while others were opened
        open_request asked;
        asked.mode = d->mode_;
        asked.device = d->name_;
        result<open_response> told = error(std::errc::not_connected, "open a device again");
        duration waited{};
        for (;;) {
            if (begun)
                told = co_await ask(asked, *begun);
            else
                told = begun.error();
            if (told || told.error() != std::errc::operation_not_permitted || waited >= reopen_patience)
                break;
            constexpr auto step = std::chrono::milliseconds(500);
            waited += step;
            const bool slept = co_await sleep_for(step);
            if (!slept)
                co_return;
        }
        if (std::ranges::find(devices_, d) == devices_.end())
            continue; // closed meanwhile
        if (!told)
            d->open_ = told.error();
        else if (told->sectors * sector_size < d->properties_.size ||
                 told->logical_block_size != d->properties_.block_size)
            d->open_ = error(std::errc(ESTALE),
                             "the device is another one than before: smaller, or with other blocks");
        else
            d->take_again(*told);
    }
}

// With the number that the device has when it is sent.
class device::farewell final : public rtrs::client::header {
public:
    explicit farewell(const device& d) noexcept : device_(d) {}
    result<std::size_t> write(std::span<std::byte> into) noexcept override
    {
        const auto bytes = encode_close(device_.number_);
        std::ranges::copy(bytes, into.begin());
        return bytes.size();
    }

private:
    const device& device_;
};

task<result<void>> client::close(std::unique_ptr<device> d)
{
    device::farewell message(*d);
    co_return co_await session_.write(message, {}, rtrs::client::lane::service);
}

} // namespace verbena::rnbd
