// SPDX-License-Identifier: Apache-2.0
#include "change_numbers.hpp"

#include "file_status.hpp"

#include <algorithm>
#include <array>
#include <mutex>
#include <new>

namespace verbena::posixfs {

namespace {

constexpr std::uint64_t second = 1'000'000'000;
// What is stamped a tick late, as by a thread that was held up, is within this all the same.
constexpr std::uint64_t ticks_to_rest = 4;
// exFAT keeps so much of a ctime, the coarsest of those file systems that keep parts of a second.
constexpr std::uint64_t coarsest_part = 10'000'000;
// File systems that keep whole seconds, or even ones.
constexpr std::uint64_t rest_of_seconds = 4 * second;
// The clocks of other hosts differ from ours.
constexpr std::uint64_t rest_of_other_hosts = 60 * second;
constexpr int tries_without_lock = 8;

std::uint64_t nanoseconds(const timespec& t) noexcept
{
    return static_cast<std::uint64_t>(t.tv_sec) * second + static_cast<std::uint64_t>(t.tv_nsec);
}

std::uint64_t time_of_clock(clockid_t clock) noexcept
{
    timespec t{};
    ::clock_gettime(clock, &t);
    return nanoseconds(t);
}

// Times before the epoch are larger than all others where they have no sign.
bool is_later(std::uint64_t a, std::uint64_t b) noexcept { return static_cast<std::int64_t>(a - b) > 0; }
std::uint64_t later(std::uint64_t a, std::uint64_t b) noexcept { return is_later(a, b) ? a : b; }
std::uint64_t earlier(std::uint64_t a, std::uint64_t b) noexcept { return is_later(a, b) ? b : a; }

// Two files with one key share their numbers: each sees more changes than there were. 0 is nobody's.
std::uint64_t key_of(const numbered_file& f) noexcept
{
    std::uint64_t k = std::uint64_t(f.inode) + std::uint64_t(f.device) * 0x9e3779b97f4a7c15ull;
    k = (k ^ (k >> 30)) * 0xbf58476d1ce4e5b9ull;
    k = (k ^ (k >> 27)) * 0x94d049bb133111ebull;
    k ^= k >> 31;
    return k != 0 ? k : 1;
}

} // namespace

// Readers without the lock see parts of what is written just then, and throw them away: see `writing`. Each load is ordered before the last one
// of the version, and each store behind the first.
struct change_numbers::record {
    std::atomic<std::uint64_t> ctime{0};
    std::atomic<std::uint64_t> number{0};
    std::atomic<std::uint64_t> changed{0}; ///< the change that was told last
    std::atomic<std::uint64_t> covered{0}; ///< the number is that of what was told up to here

    bool is_settled() const noexcept
    {
        return covered.load(std::memory_order_acquire) >= changed.load(std::memory_order_acquire);
    }
    void set(std::uint64_t at, std::uint64_t n, std::uint64_t up_to) noexcept
    {
        ctime.store(at, std::memory_order_release);
        number.store(n, std::memory_order_release);
        covered.store(up_to, std::memory_order_release);
    }
};

struct alignas(64) change_numbers::stripe {
    std::mutex mutex;
    std::atomic<std::uint32_t> version{0}; ///< odd: something is being written
    std::atomic<std::uint64_t> changes{0}; ///< that were told, of all its files
    std::uint64_t lost = 0;                ///< the largest number of a record that is gone
    std::array<std::atomic<std::uint64_t>, files_of_stripe> keys{};
    std::array<record, files_of_stripe> records{};

    record* find(std::uint64_t key) noexcept
    {
        for (std::size_t i = 0; i < files_of_stripe; ++i) {
            if (keys[i].load(std::memory_order_acquire) == key)
                return &records[i];
        }
        return nullptr;
    }
    void read(mark& m) noexcept
    {
        m.seen = changes.load(std::memory_order_acquire);
        const record* const r = find(m.key);
        m.known = r != nullptr;
        if (r != nullptr) {
            m.ctime = r->ctime.load(std::memory_order_acquire);
            m.number = r->number.load(std::memory_order_acquire);
            m.settled = r->is_settled();
        }
    }
    // The one that changed longest ago goes.
    record& replace(std::uint64_t key) noexcept
    {
        std::size_t at = 0;
        for (std::size_t i = 0; i < files_of_stripe; ++i) {
            if (keys[i] == 0) {
                at = i;
                break;
            }
            if (is_later(records[at].ctime, records[i].ctime))
                at = i;
        }
        if (keys[at] != 0)
            lost = later(lost, records[at].number);
        keys[at].store(key, std::memory_order_release);
        return records[at];
    }
};

// The lock of a stripe, while its numbers change.
class change_numbers::writing {
public:
    explicit writing(stripe& s) noexcept : lock_(s.mutex), stripe_(s)
    {
        s.version.store(s.version.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    }
    ~writing()
    {
        stripe_.version.store(stripe_.version.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    }
    writing(const writing&) = delete;

private:
    const std::lock_guard<std::mutex> lock_;
    stripe& stripe_;
};

change_numbers::time_source change_numbers::kernel_times() noexcept
{
    timespec tick{};
    ::clock_getres(CLOCK_REALTIME_COARSE, &tick);
    return {[]() noexcept { return time_of_clock(CLOCK_REALTIME_COARSE); }, nanoseconds(tick),
            []() noexcept { return time_of_clock(CLOCK_REALTIME); }};
}

std::shared_ptr<change_numbers> change_numbers::of_process()
{
    static std::mutex mutex;
    static std::weak_ptr<change_numbers> known;
    const std::lock_guard lock(mutex);
    auto there = known.lock();
    if (!there)
        known = there = std::make_shared<change_numbers>();
    return there;
}

change_numbers::change_numbers(const time_source& times, std::size_t stripes)
    : times_(times), count_(stripes), started_(times.start())
{
}

change_numbers::~change_numbers() { delete[] stripes_.load(std::memory_order_acquire); }

// nullptr where there is no memory: then changes of one tick look alike.
change_numbers::stripe* change_numbers::all() noexcept
{
    stripe* first = stripes_.load(std::memory_order_acquire);
    if (first != nullptr)
        return first;
    stripe* const made = new (std::nothrow) stripe[count_];
    if (made == nullptr)
        return nullptr;
    // What the table before this one gave is lost, and no larger.
    for (std::size_t i = 0; i < count_; ++i)
        made[i].lost = started_;
    if (stripes_.compare_exchange_strong(first, made, std::memory_order_acq_rel))
        return made;
    delete[] made;
    return first; // of another thread, which came before
}

change_numbers::mark change_numbers::before_look(const numbered_file& file) const noexcept
{
    mark m;
    m.key = key_of(file);
    m.local = file.local;
    m.now = times_.now(); // before the record is read: see settle()
    stripe* const found = stripes_.load(std::memory_order_acquire);
    if (found == nullptr)
        return m;
    stripe& s = found[index_of(m.key)];
    for (int i = 0; i < tries_without_lock; ++i) {
        const std::uint32_t version = s.version.load(std::memory_order_acquire);
        if (version % 2 != 0)
            continue;
        s.read(m);
        if (s.version.load(std::memory_order_relaxed) == version)
            return m;
    }
    const std::lock_guard lock(s.mutex);
    s.read(m);
    return m;
}

void change_numbers::changed(const numbered_file& file) noexcept
{
    const std::uint64_t key = key_of(file);
    stripe* const found = all();
    if (found == nullptr)
        return;
    stripe& s = found[index_of(key)];
    const writing w(s);
    const std::uint64_t count = s.changes.load(std::memory_order_relaxed) + 1;
    s.changes.store(count, std::memory_order_release);
    // Without a record nobody was told a number of this tick, but for such as are lost: there is nothing to tell apart.
    if (record* const r = s.find(key))
        r->changed.store(count, std::memory_order_release);
}

// From then on no change leaves the file with this ctime.
std::uint64_t change_numbers::end_of(std::uint64_t ctime, bool local) const noexcept
{
    if (!local)
        return ctime + rest_of_other_hosts;
    return ctime + (ctime % second == 0 ? rest_of_seconds : rest_of_parts());
}

std::uint64_t change_numbers::rest_of_parts() const noexcept
{
    return coarsest_part + ticks_to_rest * times_.tick;
}

std::uint64_t change_numbers::number_of(const mark& m, const timespec& ctime) noexcept
{
    const std::uint64_t stamp = nanoseconds(ctime);
    if (m.known && m.settled && m.ctime == stamp)
        return m.number;
    const std::uint64_t end = end_of(stamp, m.local);
    const bool at_rest = !is_later(end, m.now);
    if (at_rest && (!m.known || (m.ctime != stamp && is_later(stamp, m.number))))
        return end - 1;
    return settle(m, stamp, end, at_rest);
}

int change_numbers::look(const numbered_file& file, int fd, looked& st) noexcept
{
    const mark m = before_look(file);
    if (file_status(fd, st) != 0)
        return -1;
    st.number = number_of(m, st.st_ctim);
    return 0;
}

void change_numbers::look_again(const numbered_file& file, int fd, looked& st, std::uint64_t before) noexcept
{
    const std::uint64_t stamp = nanoseconds(st.st_ctim);
    if (is_later(end_of(stamp, file.local), before)) {
        look(file, fd, st);
        return;
    }
    // What comes after the first look has a later ctime, so that a record of this one says all.
    mark m = before_look(file);
    m.now = before;
    st.number = number_of(m, st.st_ctim);
}

std::uint64_t change_numbers::settle(const mark& m, std::uint64_t stamp, std::uint64_t end,
                                     bool at_rest) noexcept
{
    stripe* const found = all();
    if (found == nullptr)
        return at_rest ? end - 1 : stamp;
    stripe& s = found[index_of(m.key)];
    const writing w(s);
    // While the version is odd: whoever has seen a later time reads what is decided here, and only then takes the file to be at rest.
    const std::uint64_t now = times_.now();
    const bool late = !is_later(end, now);
    // No number of the present is larger. This one is of a ctime that lies ahead, since the clock was set back. Until
    // that time comes the stripe's other files would have no room for their numbers.
    if (is_later(s.lost, now + rest_of_parts()))
        s.lost = now;
    record* r = s.find(m.key);
    if (r == nullptr) {
        if (at_rest)
            return end - 1;
        // Others may have been told `end` - 1 of it, or of a later state. So nothing is noted, and this one is below them.
        if (late) {
            const std::uint64_t number = later(stamp, earlier(s.lost + 1, end - 2));
            s.lost = later(s.lost, number);
            return number;
        }
        // What was lost is about as new as `end`: the tick of `stamp` is over, and this state the last one with it.
        if (is_later(s.lost + 2, end - 2))
            return end - 2;
        const std::uint64_t number = later(stamp + 1, s.lost + 2);
        r = &s.replace(m.key);
        r->set(stamp, number, m.seen);
        r->changed.store(s.changes, std::memory_order_release);
        return number;
    }
    const bool settled = r->is_settled();
    const std::uint64_t number = r->number;
    // Somebody else has looked at a later state. No number is one less than another, so this one is nobody else's.
    if (m.seen < (settled ? r->changed : r->covered))
        return number - 1;
    if (settled && r->ctime == stamp)
        return number;
    if (r->ctime != stamp && late && is_later(stamp, number))
        return at_rest ? end - 1 : stamp;
    const std::uint64_t next = later(stamp + 1, number + 2);
    r->set(stamp, next, m.seen);
    return next;
}

} // namespace verbena::posixfs
