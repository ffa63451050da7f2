// SPDX-License-Identifier: Apache-2.0
// A client that keeps a ledger of what a server of block devices acknowledged, for tests in which the server's machine dies.
//
//   block_ledger      works at 16 places of a device at once, each of which does one operation after the other
//
// Commands and answers are those of ledger (main.cpp); URL names a device: rnbd+iwarp://HOST:PORT/NAME. What was written is stable once
// it was written with FUA, or once a flush was answered that began after the write had been; a sector has what was stable last, or
// something that was written later.
#include "client/block_session.hpp"
#include "client/runtime.hpp"
#include "commands.hpp"

#include <verbena/core/reactor/reactor.hpp>
#include <verbena/core/task/scope.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>

using namespace verbena;
using namespace verbena::ledger;

namespace {

constexpr std::size_t sector_size = 512;
constexpr std::size_t most_sectors = 64; // of an operation
constexpr unsigned workers = 16;
constexpr std::size_t max_shown = 8;

using numbers = std::mt19937_64;
using stamp = std::uint64_t; // of what was written, all different; 0: zeros

struct sector {
    stamp stable = 0;
    std::vector<stamp> later; // what was written since, and may be there or not
};

enum class kind : std::uint8_t { write, write_through, write_zeroes, flush, read, count };
constexpr std::size_t kinds = std::size_t(kind::count);
constexpr const char* names[kinds] = {"WRITE", "WRITE with FUA", "WRITE ZEROES", "FLUSH", "READ"};
using counters = std::array<std::uint64_t, kinds>;

void fill(std::span<std::byte> out, stamp s, std::uint64_t number)
{
    std::array<std::uint64_t, sector_size / sizeof(std::uint64_t)> words{};
    if (s != 0) {
        std::uint64_t x = s * 0x9e3779b97f4a7c15 + number;
        for (auto& w : words)
            w = x = (x ^ (x >> 29)) * 0xbf58476d1ce4e5b9 + 1;
        words[0] = s; // told if it is there in place of another
        words[1] = number;
    }
    std::memcpy(out.data(), words.data(), sector_size);
}

bool is(std::span<const std::byte> found, stamp s, std::uint64_t number)
{
    std::array<std::byte, sector_size> wanted;
    fill(wanted, s, number);
    return std::memcmp(found.data(), wanted.data(), sector_size) == 0;
}

// Connected, with the device open.
struct link {
    link(cli::runtime& r, const std::string& url)
        : session(r.shard(), r.buffers(),
                  [&r](std::string_view) -> result<verbs::context*> { return &r.iwarp(); })
    {
        place.url = url;
        place.patience = std::chrono::seconds(30);
    }
    // Nothing, or why not.
    task<std::string> open()
    {
        if (const std::string wrong = cli::check(place); !wrong.empty())
            co_return wrong;
        cli::failure failed = co_await session.connect(place);
        if (!failed.failed())
            failed = co_await session.open(rnbd::access_mode::read_write);
        co_return failed.failed() ? failed.what() : std::string();
    }
    cli::block_place place;
    cli::block_session session;
};

class book {
public:
    explicit book(cli::runtime& r) : runtime_(r) {}

    task<void> serve()
    {
        for (;;) {
            const std::string line = co_await commands_.next();
            const std::size_t space = line.find(' ');
            const std::string word = line.substr(0, space);
            const std::string url = space == std::string::npos ? std::string() : line.substr(space + 1);
            if (word == "end")
                co_return;
            if (word == "load")
                co_await load(url);
            else if (word == "check" || word == "check-all")
                co_await check(url);
            else if (word == "counts")
                answer(counts());
            else
                answer("error no command " + word);
        }
    }

private:
    task<void> load(std::string url)
    {
        link l(runtime_, url);
        const std::string failed = co_await l.open();
        if (!failed.empty()) {
            co_await l.session.close();
            answer("error " + failed);
            co_return;
        }
        rnbd::device& device = *l.session.device();
        if (sectors_.empty())
            sectors_.resize(device.properties().size / sector_size);
        failure_.clear();
        stop_ = false;
        const counters before = counters_;
        std::string command;
        {
            scope all(runtime_.shard());
            for (unsigned i = 0; i < workers; ++i)
                all.spawn([this, &device, i] { return work(device, i); });
            answer("loading");
            command = co_await commands_.next();
            stop_ = true;
            co_await l.session.close();
            co_await all.join();
        }
        if (!failure_.empty())
            answer("error " + failure_);
        else
            answer(command == "dead" ? "acknowledged " + std::to_string(sum(counters_) - sum(before))
                                     : "error \"dead\" ends a load, not \"" + command + '"');
    }

    // One operation after the other on its part of the device.
    task<void> work(rnbd::device& device, unsigned number)
    {
        numbers random(++loads_);
        const std::uint64_t size = sectors_.size() / workers;
        const std::uint64_t begin = size * number;
        std::vector<std::uint64_t> unflushed;
        lease memory = co_await runtime_.buffers().acquire(most_sectors * sector_size);
        while (memory && !stop_) {
            const std::uint64_t n = 1 + random() % (random() % 4 == 0 ? most_sectors : 8);
            const std::uint64_t first = begin + random() % (size - n);
            const std::span<std::byte> bytes = memory.bytes().first(n * sector_size);
            const kind what = choose(random() % 20);
            const stamp s = what == kind::write || what == kind::write_through ? ++stamps_ : 0;
            result<void> done;
            if (what == kind::write || what == kind::write_through || what == kind::write_zeroes) {
                for (std::uint64_t i = 0; i < n; ++i) {
                    sectors_[first + i].later.push_back(s);
                    fill(bytes.subspan(i * sector_size, sector_size), s, first + i);
                }
            }
            switch (what) {
            case kind::write_zeroes:
                done = co_await device.write_zeroes(first * sector_size, n * sector_size, random() % 2 == 0);
                break;
            case kind::flush: done = co_await device.flush(); break;
            case kind::read: done = co_await device.read(first * sector_size, bytes); break;
            default: done = co_await device.write(first * sector_size, bytes, what == kind::write_through);
            }
            if (!done) {
                // By the ends of connections it ends; what a server answers is an error of its own.
                if (!stop_ && done.error() != std::errc::not_connected &&
                    done.error() != std::errc::operation_canceled)
                    failure_ = std::string(names[std::size_t(what)]) + ": " + done.error().message();
                co_return;
            }
            ++counters_[std::size_t(what)];
            for (std::uint64_t i = 0; what == kind::read && i < n; ++i) {
                const sector& at = sectors_[first + i];
                if (!is(bytes.subspan(i * sector_size, sector_size),
                        at.later.empty() ? at.stable : at.later.back(), first + i))
                    failure_ = "READ: sector " + std::to_string(first + i) + " is not what was written last";
            }
            if (what == kind::write || what == kind::write_zeroes) {
                for (std::uint64_t i = 0; i < n; ++i)
                    unflushed.push_back(first + i);
            } else if (what == kind::write_through) {
                for (std::uint64_t i = 0; i < n; ++i)
                    settle(first + i);
            } else if (what == kind::flush) {
                for (const std::uint64_t i : unflushed)
                    settle(i);
                unflushed.clear();
            }
        }
    }
    static kind choose(std::uint64_t n)
    {
        return n < 10   ? kind::write
               : n < 13 ? kind::write_through
               : n < 15 ? kind::write_zeroes
               : n < 18 ? kind::flush
                        : kind::read;
    }
    void settle(std::uint64_t number)
    {
        sector& at = sectors_[number];
        if (!at.later.empty())
            at.stable = at.later.back();
        at.later.clear();
    }

    task<void> check(std::string url)
    {
        link l(runtime_, url);
        const std::string failed = co_await l.open();
        std::vector<std::string> differences;
        std::string trouble = failed;
        lease memory = co_await runtime_.buffers().acquire(most_sectors * sector_size);
        for (std::uint64_t at = 0; trouble.empty() && at < sectors_.size(); at += most_sectors) {
            const std::uint64_t n = std::min<std::uint64_t>(most_sectors, sectors_.size() - at);
            const std::span<std::byte> bytes = memory.bytes().first(n * sector_size);
            const auto done = co_await l.session.device()->read(at * sector_size, bytes);
            if (!done)
                trouble = "READ: " + done.error().message();
            for (std::uint64_t i = 0; done && i < n; ++i)
                compare(bytes.subspan(i * sector_size, sector_size), at + i, differences);
        }
        co_await l.session.close();
        if (!trouble.empty()) {
            answer("error " + trouble);
            co_return;
        }
        for (std::size_t i = 0; i < std::min(differences.size(), max_shown); ++i)
            answer("  " + differences[i]);
        answer(differences.empty() ? "good" : "lost " + std::to_string(differences.size()));
    }
    // What is there now is there for good: it was read from the medium.
    void compare(std::span<const std::byte> found, std::uint64_t number,
                 std::vector<std::string>& differences)
    {
        sector& at = sectors_[number];
        at.later.push_back(at.stable);
        const auto which = std::ranges::find_if(at.later, [&](stamp s) { return is(found, s, number); });
        if (which != at.later.end()) {
            at.stable = *which;
        } else {
            std::uint64_t there = 0;
            std::memcpy(&there, found.data(), sizeof there);
            differences.push_back("sector " + std::to_string(number) + " has " + std::to_string(there) +
                                  ", and " + std::to_string(at.stable) + " was stable");
        }
        at.later.clear();
    }

    static std::uint64_t sum(const counters& c)
    {
        return std::accumulate(c.begin(), c.end(), std::uint64_t(0));
    }
    std::string counts() const
    {
        std::string text = "counts";
        for (std::size_t i = 0; i < kinds; ++i)
            text += (i == 0 ? " " : ", ") + std::to_string(counters_[i]) + ' ' + names[i];
        return text;
    }

    cli::runtime& runtime_;
    commands commands_;
    std::vector<sector> sectors_;
    counters counters_{};
    std::uint64_t loads_ = 0; // of the workers, for their numbers
    stamp stamps_ = 0;
    std::string failure_;
    bool stop_ = false;
};

} // namespace

int main()
{
    auto shard = reactor::create();
    if (!shard)
        return std::fprintf(stderr, "block_ledger: %s\n", shard.error().message().c_str()), 1;
    cli::runtime r(std::move(*shard), {});
    book b(r);
    run_until_complete(r.shard(), b.serve());
    return 0;
}
