// SPDX-License-Identifier: Apache-2.0
// Block devices: `verbena block`.
#include "block.hpp"
#include "block_parts.hpp"

#include "../standard_output.hpp"
#include "json_text.hpp"
#include "percentile.hpp"

#include <verbena/core/printable.hpp>
#include <verbena/core/task/already_made.hpp>
#include <verbena/core/task/combine.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/core/task/sleep.hpp>
#include <verbena/core/unique_fd.hpp>
#include <verbena/protocols/rnbd/client.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <fcntl.h>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <sys/stat.h>
#include <unistd.h>

namespace verbena::cli {

namespace {

using nlohmann::json;

json describe(const opened_block& d, const std::string& url)
{
    const storage::block_properties p = d.device->properties();
    json out = {{"url", url},
                {"size", p.size},
                {"block_size", p.block_size},
                {"physical_block_size", p.physical_block_size},
                {"discard", p.discard_granularity != 0},
                {"write_zeroes", p.write_zeroes},
                {"write_back", p.write_back},
                {"max_io", d.session->max_io_size()},
                {"queue_depth", d.session->queue_depth()}};
    return out;
}

task<int> info(runtime& r, opened_block& d, const block_options& o)
{
    if (r.options().json) {
        print("%s\n", dump(describe(d, o.url)).c_str());
        co_return exit_ok;
    }
    const storage::block_properties p = d.device->properties();
    print("%s: %s (%llu bytes), blocks of %u bytes, physical %u%s%s%s; requests of up to %u bytes, %u at "
          "once\n",
          o.url.c_str(), human(p.size).c_str(), static_cast<unsigned long long>(p.size), p.block_size,
          p.physical_block_size, p.discard_granularity != 0 ? ", discard" : "",
          p.write_zeroes ? ", write zeroes" : "", p.write_back ? ", write-back cache" : "",
          d.session->max_io_size(), d.session->queue_depth());
    co_return exit_ok;
}

// As read(2) or write(2), for all of it or up to the end. Yields how much; an errno below 0.
template<class Call, class Byte>
std::int64_t all_of(Call call, int fd, std::span<Byte> bytes)
{
    std::size_t done = 0;
    while (done < bytes.size()) {
        const ssize_t n = call(fd, bytes.data() + done, bytes.size() - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0)
            break;
        done += static_cast<std::size_t>(n);
    }
    return static_cast<std::int64_t>(done);
}

// One part is written to the file while the next one comes.
task<int> read_out(runtime& r, opened_block& d, const block_options& o)
{
    const storage::block_properties p = d.device->properties();
    const auto begun = std::chrono::steady_clock::now();
    // As of what was written, the end may lie within a block.
    const auto length = length_within(o, p, last_block::may_be_cut);
    if (!length)
        co_return complain(out_of_place(o, p), exit_usage);
    const std::uint64_t end = o.offset + *length;
    const unique_fd file(
        o.file.empty() ? -1 : ::open(o.file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    const int out = o.file.empty() ? STDOUT_FILENO : file.get();
    if (out < 0)
        co_return complain(o.file + ": " + std::system_category().message(errno), exit_failed);
    std::optional<block_meter> told(std::in_place, r, *length);
    lease first = co_await r.buffers().acquire(block_turn);
    lease second = co_await r.buffers().acquire(block_turn);
    std::array<lease, 2> memory;
    memory[0] = std::move(first);
    memory[1] = std::move(second);
    if (!memory[0] || !memory[1])
        co_return complain("no memory for the transfer", exit_failed);
    std::size_t filled = 0;
    std::size_t which = 0;
    std::int64_t written = 0;
    for (std::uint64_t at = o.offset; at < end || filled != 0;) {
        const std::span<std::byte> ready = memory[which].bytes().first(filled);
        const std::size_t wanted = std::min<std::uint64_t>(end - at, block_turn);
        which ^= 1;
        const std::span<std::byte> next =
            memory[which].bytes().first((wanted + p.block_size - 1) / p.block_size * p.block_size);
        const auto save = [&]() -> task<result<void>> {
            if (ready.empty())
                co_return result<void>();
            auto put = [&] { return all_of(::write, out, std::span<const std::byte>(ready)); };
            written = co_await r.files().run(std::move(put));
            if (written != static_cast<std::int64_t>(ready.size()))
                co_return error::from_errno(written < 0 ? static_cast<int>(-written) : EIO,
                                            "write what was read");
            co_return result<void>();
        };
        const auto load = [&]() -> task<result<void>> {
            if (next.empty())
                co_return result<void>();
            co_return co_await d.device->read(at, next);
        };
        std::vector<task<result<void>>> both;
        both.push_back(save());
        both.push_back(load());
        const auto done = co_await when_all(std::move(both));
        for (const auto& one : done) {
            if (!one)
                co_return complain((o.file.empty() ? o.url : o.url + " to " + o.file) + ": " +
                                       one.error().message(),
                                   exit_failed);
        }
        told->add(wanted);
        at += wanted;
        filled = wanted;
    }
    told.reset();
    tell_moved(r, *length, "read", begun);
    co_return exit_ok;
}

// What came before the failure is on the device, and stays there: it is flushed, so that what is said of it holds. Of `tried` bytes behind
// it, which went as many requests, any may be there.
task<int> end_early(opened_block& d, std::uint64_t written, const std::string& why, std::uint64_t tried = 0)
{
    if (written == 0 && tried == 0)
        co_return complain(why + ": nothing was written", exit_failed);
    const auto flushed = co_await d.device->flush();
    std::string text = why + ": ";
    if (written != 0)
        text += "the first " + std::to_string(written) + " bytes of the input were written" +
                (flushed ? " and flushed"
                         : ", and may be lost, as the flush failed: " + flushed.error().message());
    if (tried != 0)
        text += std::string(written != 0 ? "; the next " : "the first ") + std::to_string(tried) +
                " bytes may be written in part";
    co_return complain(text, exit_failed);
}

task<int> write_in(runtime& r, opened_block& d, const block_options& o)
{
    const auto begun_at = std::chrono::steady_clock::now();
    const storage::block_properties p = d.device->properties();
    const unique_fd file(o.file.empty() ? -1 : ::open(o.file.c_str(), O_RDONLY | O_CLOEXEC));
    const int in = o.file.empty() ? STDIN_FILENO : file.get();
    if (in < 0)
        co_return complain(o.file + ": " + std::system_category().message(errno), exit_failed);
    if (o.offset % p.block_size != 0 || o.offset > p.size)
        co_return complain(out_of_place(o, p), exit_usage);
    // What a file holds is known before the first block is written, and what a pipe does not.
    struct stat is = {};
    const bool sized = ::fstat(in, &is) == 0 && S_ISREG(is.st_mode);
    const off_t begun = sized ? ::lseek(in, 0, SEEK_CUR) : 0;
    const std::uint64_t all =
        sized && is.st_size >= begun ? static_cast<std::uint64_t>(is.st_size - begun) : p.size - o.offset;
    const std::string beyond =
        o.url + ": the input goes beyond the end of the device (" + std::to_string(p.size) + " bytes)";
    if (all > p.size - o.offset)
        co_return complain(beyond + ": nothing was written", exit_failed);
    std::optional<block_meter> told(std::in_place, r, all);
    std::uint64_t written = 0;
    lease memory = co_await r.buffers().acquire(block_turn);
    if (!memory)
        co_return complain("no memory for the transfer", exit_failed);
    for (std::uint64_t at = o.offset;;) {
        const std::span<std::byte> room = memory.bytes().first(block_turn);
        auto take = [&] { return all_of(::read, in, room); };
        const std::int64_t got = co_await r.files().run(std::move(take));
        if (got < 0)
            co_return co_await end_early(d, at - o.offset,
                                         (o.file.empty() ? "standard input" : o.file) + ": " +
                                             std::system_category().message(static_cast<int>(-got)));
        if (got == 0)
            break;
        // What still fits is written, as whoever fills a disk from a pipe expects.
        const auto size = static_cast<std::size_t>(std::min<std::uint64_t>(std::uint64_t(got), p.size - at));
        if (size == 0)
            co_return co_await end_early(d, at - o.offset, beyond);
        // The last block is filled up with what the device has there.
        const std::size_t whole = (size + p.block_size - 1) / p.block_size * p.block_size;
        if (whole != size) {
            std::vector<std::byte> last(p.block_size);
            const auto old = co_await d.device->read(at + whole - p.block_size, last);
            if (!old)
                co_return co_await end_early(d, at - o.offset, o.url + ": " + old.error().message());
            const std::size_t kept = p.block_size - (whole - size);
            std::ranges::copy(std::span(last).subspan(kept),
                              room.begin() + static_cast<std::ptrdiff_t>(size));
        }
        const auto done = co_await d.device->write(at, room.first(whole));
        if (!done)
            co_return co_await end_early(d, at - o.offset, o.url + ": " + done.error().message(), size);
        told->add(size);
        at += size;
        written = at - o.offset;
        if (size < static_cast<std::size_t>(got))
            co_return co_await end_early(d, at - o.offset, beyond);
        if (size < block_turn || d.device->losses() != 0)
            break;
    }
    const int code = co_await flush_block(d, o);
    told.reset();
    if (code == exit_ok)
        tell_moved(r, written, "written and flushed", begun_at);
    co_return code;
}

task<int> discard(opened_block& d, const block_options& o)
{
    const storage::block_properties p = d.device->properties();
    const auto length = length_within(o, p);
    if (!length)
        co_return complain(out_of_place(o, p), exit_usage);
    const auto done = co_await d.device->discard(o.offset, *length);
    if (!done)
        co_return complain(o.url + ": " + done.error().message(), exit_failed);
    co_return co_await flush_block(d, o);
}

struct bench_state {
    std::chrono::steady_clock::time_point until;
    std::uint64_t operations = 0;
    std::uint64_t next = 0; // of a sequential one
    std::mt19937_64 random{1};
    std::vector<double> microseconds;
    result<void> failed;
};

task<void> bench_lane(runtime& r, opened_block& d, const block_options& o, bench_state& all)
{
    const storage::block_properties p = d.device->properties();
    const std::uint64_t places = p.size / o.size;
    lease memory = co_await r.buffers().acquire(std::max<std::size_t>(o.size, 4096));
    if (!memory) {
        all.failed = error(std::errc::not_enough_memory, "memory for requests");
        co_return;
    }
    const std::span<std::byte> bytes = memory.bytes().first(o.size);
    while (all.failed) {
        const auto begun = std::chrono::steady_clock::now();
        if (begun >= all.until)
            break;
        const std::uint64_t place = (o.random ? all.random() : all.next++) % places;
        result<void> done;
        if (o.writes)
            done = co_await d.device->write(place * o.size, bytes);
        else
            done = co_await d.device->read(place * o.size, bytes);
        if (!done) {
            all.failed = done;
            break;
        }
        ++all.operations;
        if (all.microseconds.size() < 4'000'000)
            all.microseconds.push_back(
                std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begun).count());
    }
}

task<int> bench(runtime& r, opened_block& d, const block_options& o)
{
    const storage::block_properties p = d.device->properties();
    if (o.size % p.block_size != 0 || o.size > p.size)
        co_return complain("--block is of whole blocks of the device (" + std::to_string(p.block_size) +
                               " bytes), and fits it",
                           exit_usage);
    bench_state all;
    const auto begun = std::chrono::steady_clock::now();
    all.until = begun + std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                            std::chrono::duration<double>(o.seconds));
    scope lanes(r.shard());
    for (unsigned i = 0; i < o.depth; ++i) {
        try {
            lanes.spawn(already_made, bench_lane(r, d, o, all));
        } catch (const std::bad_alloc&) { // with fewer at once it would be another measurement
            all.failed = error(std::errc::not_enough_memory, "memory for requests");
            break;
        }
    }
    co_await lanes.join();
    if (!all.failed)
        co_return complain(o.url + ": " + all.failed.error().message(), exit_failed);
    const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
    std::ranges::sort(all.microseconds);
    const double per_second = static_cast<double>(all.operations) / took;
    const double bytes = per_second * static_cast<double>(o.size);
    if (r.options().json) {
        json out = {{"url", o.url},
                    {"operation", o.writes ? "write" : "read"},
                    {"random", o.random},
                    {"block", o.size},
                    {"depth", o.depth},
                    {"seconds", took},
                    {"operations", all.operations},
                    {"operations_per_second", per_second},
                    {"bytes_per_second", bytes}};
        if (!all.microseconds.empty()) {
            for (const auto& [name, which] : {std::pair("p50", 50.0), {"p99", 99.0}, {"max", 100.0}})
                out["microseconds"][name] = percentile(all.microseconds, which);
        }
        print("%s\n", dump(out).c_str());
    } else {
        print("%s %s of %u bytes, %u at once: %.0f/s, %s/s", o.random ? "random" : "sequential",
              o.writes ? "writes" : "reads", o.size, o.depth, per_second,
              human(static_cast<std::uint64_t>(bytes)).c_str());
        if (!all.microseconds.empty())
            print("; us: p50 %.1f  p99 %.1f  max %.1f", percentile(all.microseconds, 50),
                  percentile(all.microseconds, 99), percentile(all.microseconds, 100));
        print("\n");
    }
    co_return exit_ok;
}

} // namespace

task<int> block(runtime& r, block_options o)
{
    if (o.file == "-")
        o.file.clear();
    if (o.file.starts_with("rnbd+"))
        co_return complain(o.file + ": the device stands first, and then the file", exit_usage);
    opened_block d(r, o);
    const bool changes = o.what == block_command::write || o.what == block_command::discard ||
                         (o.what == block_command::bench && o.writes) ||
                         (o.what == block_command::verify && o.verify_writes);
    int code = co_await d.open(changes ? rnbd::access_mode::read_write : rnbd::access_mode::read_only);
    if (code == exit_ok) {
        switch (o.what) {
        case block_command::info: code = co_await info(r, d, o); break;
        case block_command::read: code = co_await read_out(r, d, o); break;
        case block_command::write: code = co_await write_in(r, d, o); break;
        case block_command::discard: code = co_await discard(d, o); break;
        case block_command::verify: code = co_await verify_block(r, d, o); break;
        case block_command::bench: code = co_await bench(r, d, o); break;
        }
    }
    co_await d.link.close();
    co_return code;
}

} // namespace verbena::cli
