// SPDX-License-Identifier: Apache-2.0
// Numbers of the states of files: no later state has the same one or a smaller one, whatever happens at once, what is forgotten, and where the
// process starts anew. With a model of files, and with files.
#include "../../../plugins/posixfs/change_numbers.hpp"
#include "../../../plugins/posixfs/unique_fd.hpp"
#include "backend_changes_suite.hpp"
#include "temporary_directory.hpp"

#include <verbena/plugins/posixfs.hpp>

#include <array>
#include <fcntl.h>
#include <filesystem>
#include <memory>
#include <optional>
#include <random>
#include <sched.h>
#include <sys/mount.h>
#include <thread>
#include <vector>

namespace suite {

/// Linux has given no ctime twice since 6.13 that was looked at, but by the tick on ramfs.
struct ramfs {
    ramfs()
    {
        BOOST_REQUIRE_MESSAGE(::mount("none", at.path().c_str(), "ramfs", 0, "mode=0777") == 0,
                              "a ramfs can't be mounted; these tests need root");
    }
    ~ramfs() { ::umount2(at.path().c_str(), MNT_DETACH); }
    ramfs(const ramfs&) = delete;
    std::filesystem::path path() const { return at.path(); }
    temporary_directory at;
};

/// What is mounted ends with the process. Before there are other threads.
struct own_mounts {
    own_mounts()
    {
        if (::unshare(CLONE_NEWNS) == 0)
            ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr);
    }
};

static std::unique_ptr<ramfs> exported;
static bool keeps_identity = false;

std::unique_ptr<file_backend> another_backend(blocking_pool& pool)
{
    posixfs::posixfs_options o;
    o.root = exported->path();
    o.keep_shard_identity = keeps_identity;
    auto fs = posixfs::open_posixfs(o, pool);
    BOOST_REQUIRE_MESSAGE(fs, (fs ? std::string() : fs.error().message()));
    return std::move(*fs);
}

std::unique_ptr<file_backend> make_backend(blocking_pool& pool, const backend_options&)
{
    exported.reset();
    exported = std::make_unique<ramfs>();
    return another_backend(pool);
}

} // namespace suite

using suite::own_mounts;
BOOST_TEST_GLOBAL_FIXTURE(own_mounts);

using namespace suite;
using posixfs::change_numbers;
using posixfs::looked;
using posixfs::numbered_file;

namespace {

constexpr std::uint64_t second = 1'000'000'000;
constexpr std::uint64_t tick = 4'000'000;

/// Virtual time: what the kernel stamps stands still for a tick.
struct model_clock {
    static inline std::uint64_t real = 0;
    static std::uint64_t coarse() noexcept { return real / tick * tick; }
    static change_numbers::time_source source() noexcept
    {
        return {[]() noexcept { return coarse(); }, tick, []() noexcept { return real; }};
    }
};

timespec time_at(std::uint64_t ns) noexcept
{
    return {static_cast<time_t>(ns / second), static_cast<long>(ns % second)};
}

/// A file of the model: its state, and when it got it.
struct model_file {
    explicit model_file(ino_t n) { who.inode = n; }
    numbered_file who;
    std::uint64_t state = 0;
    std::uint64_t ctime = 0;
    void change() noexcept
    {
        ++state;
        ctime = model_clock::coarse();
    }
};

std::uint64_t number_now(change_numbers& numbers, const model_file& f)
{
    const auto mark = numbers.before_look(f.who);
    return numbers.number_of(mark, time_at(f.ctime));
}

struct clock_fixture {
    clock_fixture() { model_clock::real = 1'700'000'000 * second + 501'234'567; }
    static void pass(std::uint64_t ns) noexcept { model_clock::real += ns; }
};

/// What happens at once on a few files: changes of ours, which are told a little later, changes of others, and looks in their three steps.
class walk {
public:
    explicit walk(std::uint64_t seed, bool whole_seconds) : random_(seed), whole_seconds_(whole_seconds)
    {
        for (ino_t i = 1; i <= 12; ++i) {
            files_.emplace_back(i);
            stamp(files_.back());
        }
        restart();
    }
    /// The first rule that was broken.
    std::string run(unsigned steps)
    {
        for (unsigned i = 0; i < steps && broken_.empty(); ++i)
            step();
        return broken_;
    }

private:
    struct answer {
        std::uint64_t number = 0;
        std::uint64_t state = 0; ///< that was seen
        std::uint64_t ctime = 0;
        std::uint64_t told = 0; ///< how many changes of ours had been told when it began
    };
    struct observer {
        std::size_t file = 0;
        unsigned done = 0; ///< steps
        change_numbers::mark mark;
        answer what;
        answer before; ///< the best answer when it began
    };
    struct changer {
        std::size_t file = 0;
        bool changed = false;
        std::uint64_t state = 0;
    };
    struct history {
        answer last;                     ///< with the largest number of all that ended
        std::vector<std::uint64_t> ours; ///< states that changes made which were told, ascending or not
    };

    std::uint64_t draw(std::uint64_t below) { return random_() % below; }
    void restart()
    {
        // One stripe: its eight files are fewer than there are.
        numbers_ = std::make_unique<change_numbers>(model_clock::source(), 1);
        observers_.clear();
        changers_.clear();
    }
    void stamp(model_file& f)
    {
        f.change();
        if (whole_seconds_)
            f.ctime = f.ctime / second * second;
    }
    void step()
    {
        clock_fixture::pass(50 + draw(20'000));
        switch (draw(16)) {
        case 0: clock_fixture::pass(draw(3 * tick)); break;
        case 1:
            if (draw(20) == 0)
                clock_fixture::pass(draw(whole_seconds_ ? 8 * second : 10 * tick));
            break;
        case 2:
            if (draw(10) == 0)
                stamp(files_[draw(files_.size())]); // somebody else's
            break;
        case 3:
            if (draw(200) == 0)
                restart();
            break;
        case 4:
        case 5:
        case 6:
        case 7: go_on_changing(); break;
        default: go_on_looking(); break;
        }
    }
    void go_on_changing()
    {
        if (changers_.size() < 3 && draw(2) == 0) {
            changers_.push_back({draw(files_.size()), false, 0});
            return;
        }
        if (changers_.empty())
            return;
        const std::size_t i = draw(changers_.size());
        changer& c = changers_[i];
        if (!c.changed) {
            stamp(files_[c.file]);
            c.state = files_[c.file].state;
            c.changed = true;
            return;
        }
        numbers_->changed(files_[c.file].who);
        histories_[c.file].ours.push_back(c.state);
        changers_.erase(changers_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    void go_on_looking()
    {
        if (observers_.size() < 4 && draw(3) == 0) {
            // Those of one file meet.
            observers_.push_back({});
            observers_.back().file = draw(draw(2) == 0 ? 3 : files_.size());
            return;
        }
        if (observers_.empty())
            return;
        const std::size_t i = draw(observers_.size());
        observer& o = observers_[i];
        const model_file& f = files_[o.file];
        history& h = histories_[o.file];
        if (o.done == 0) {
            o.before = h.last;
            o.what.told = h.ours.size();
            o.mark = numbers_->before_look(f.who);
        } else if (o.done == 1) {
            o.what.state = f.state;
            o.what.ctime = f.ctime;
        } else {
            o.what.number = numbers_->number_of(o.mark, time_at(o.what.ctime));
            check(o, h);
            if (o.what.number >= h.last.number)
                h.last = o.what;
            observers_.erase(observers_.begin() + static_cast<std::ptrdiff_t>(i));
            return;
        }
        ++o.done;
    }
    // Of an answer that had been given when this one was asked for.
    void check(const observer& o, const history& h)
    {
        const answer& a = o.before;
        const answer& b = o.what;
        if (a.number == 0)
            return;
        if (b.number < a.number)
            broken_ = "a number went back";
        // What was told before this one began, and is no part of what that one showed.
        bool ours = false;
        for (std::size_t i = 0; i < b.told; ++i)
            ours = ours || h.ours[i] > a.state;
        if (ours && b.number == a.number)
            broken_ = "a change of ours does not show";
        if (b.ctime != a.ctime && b.state > a.state && b.number == a.number)
            broken_ = "another time of change does not show";
    }

    std::mt19937_64 random_;
    const bool whole_seconds_;
    std::unique_ptr<change_numbers> numbers_;
    std::vector<model_file> files_;
    std::array<history, 12> histories_{};
    std::vector<observer> observers_;
    std::vector<changer> changers_;
    std::string broken_;
};

} // namespace

BOOST_FIXTURE_TEST_CASE(changes_within_a_tick_differ_and_a_state_keeps_its_number, clock_fixture)
{
    change_numbers numbers(model_clock::source());
    model_file f(1);
    std::uint64_t last = 0;
    for (int i = 0; i < 1000; ++i) {
        f.change();
        numbers.changed(f.who);
        const std::uint64_t number = number_now(numbers, f);
        BOOST_TEST_REQUIRE(number > last);
        BOOST_TEST_REQUIRE(number_now(numbers, f) == number);
        last = number;
        pass(1000);
    }
    // Also once the tick is over, and for good.
    for (const std::uint64_t more : {tick, 10 * tick, 3600 * second}) {
        pass(more);
        BOOST_TEST(number_now(numbers, f) == last);
    }
    // It is the ctime and a little more.
    BOOST_TEST(last > f.ctime);
    BOOST_TEST(last < f.ctime + tick);
}

BOOST_FIXTURE_TEST_CASE(what_is_forgotten_has_a_larger_number_that_stays, clock_fixture)
{
    model_file f(1);
    auto numbers = std::make_unique<change_numbers>(model_clock::source(), 1);
    std::uint64_t last = 0;
    const auto forget = [&](bool restarts) {
        if (restarts) {
            numbers = std::make_unique<change_numbers>(model_clock::source(), 1);
            return;
        }
        for (ino_t i = 2; i < 30; ++i) {
            model_file other(i);
            other.change();
            numbers->changed(other.who);
            number_now(*numbers, other);
        }
    };
    for (const bool restarts : {false, true}) {
        f.change();
        numbers->changed(f.who);
        last = number_now(*numbers, f);
        // Within the tick, and behind another change in it.
        pass(1000);
        forget(restarts);
        BOOST_TEST(number_now(*numbers, f) >= last);
        last = number_now(*numbers, f);
        pass(1000);
        f.change();
        numbers->changed(f.who);
        BOOST_TEST(number_now(*numbers, f) > last);
        last = number_now(*numbers, f);
        pass(1000);
        forget(restarts);
        f.change();
        numbers->changed(f.who);
        BOOST_TEST(number_now(*numbers, f) > last);
        last = number_now(*numbers, f);
        // At rest.
        pass(100 * tick);
        BOOST_TEST(number_now(*numbers, f) == last);
        forget(restarts);
        const std::uint64_t later = number_now(*numbers, f);
        BOOST_TEST(later >= last);
        pass(100 * tick);
        forget(restarts);
        BOOST_TEST(number_now(*numbers, f) == later);
        f.change();
        numbers->changed(f.who);
        BOOST_TEST(number_now(*numbers, f) > later);
    }
}

// As after a WRITE that waited for its disk: no tick is left in which the file could change.
BOOST_FIXTURE_TEST_CASE(a_state_that_is_first_seen_at_rest_outlives_its_record, clock_fixture)
{
    auto numbers = std::make_unique<change_numbers>(model_clock::source());
    model_file f(1);
    f.change();
    numbers->changed(f.who);
    pass(20 * tick);
    const std::uint64_t number = number_now(*numbers, f);
    numbers = std::make_unique<change_numbers>(model_clock::source());
    BOOST_TEST(number_now(*numbers, f) == number);
}

BOOST_FIXTURE_TEST_CASE(a_look_from_before_a_change_is_not_told_as_the_state_behind_it, clock_fixture)
{
    change_numbers numbers(model_clock::source());
    model_file f(1);
    f.change();
    numbers.changed(f.who);
    const std::uint64_t first = number_now(numbers, f);
    // One has looked; then the file changes within the tick, and another one looks and is told.
    const auto mark = numbers.before_look(f.who);
    const timespec seen = time_at(f.ctime);
    f.change();
    numbers.changed(f.who);
    const std::uint64_t second_state = number_now(numbers, f);
    BOOST_TEST(numbers.number_of(mark, seen) < second_state);
    BOOST_TEST(numbers.number_of(mark, seen) >= first);
    // Nothing was known of it.
    model_file g(2);
    g.change();
    const auto early = numbers.before_look(g.who);
    numbers.changed(g.who);
    const std::uint64_t told = number_now(numbers, g);
    BOOST_TEST(numbers.number_of(early, time_at(g.ctime)) < told);
    // It is told of its look before there is any other.
    model_file h(3);
    h.change();
    const auto before = numbers.before_look(h.who);
    numbers.changed(h.who);
    const std::uint64_t of_look = numbers.number_of(before, time_at(h.ctime));
    BOOST_TEST(of_look < number_now(numbers, h));
}

BOOST_FIXTURE_TEST_CASE(a_clock_that_is_set_back_hides_no_change, clock_fixture)
{
    change_numbers numbers(model_clock::source());
    model_file f(1);
    f.change();
    numbers.changed(f.who);
    std::uint64_t last = number_now(numbers, f);
    pass(-(3600 * second));
    for (int i = 0; i < 10; ++i) {
        f.change();
        if (i % 2 == 0)
            numbers.changed(f.who); // else it is somebody else's
        BOOST_TEST(number_now(numbers, f) > last);
        last = number_now(numbers, f);
        pass(tick);
    }
}

// Such a file's number goes with its record, and the next one must leave the others of its stripe their room.
BOOST_FIXTURE_TEST_CASE(a_clock_that_is_set_back_takes_no_room_from_other_files, clock_fixture)
{
    change_numbers numbers(model_clock::source(), 1);
    model_file f(1);
    f.change();
    numbers.changed(f.who);
    number_now(numbers, f);
    pass(-(3600 * second));
    for (ino_t i = 2; i < 30; ++i) { // all of them are later than these, so that it is the last one to go
        model_file future(i);
        future.change();
        future.ctime += 3600 * second + i;
        numbers.changed(future.who);
        number_now(numbers, future);
    }
    pass(10 * tick);
    model_file g(100);
    std::uint64_t last = 0;
    for (int i = 0; i < 10; ++i) {
        g.change();
        numbers.changed(g.who);
        const std::uint64_t number = number_now(numbers, g);
        BOOST_TEST(number > last);
        last = number;
        pass(1000);
    }
}

// exFAT: a change of the next tick, and of the one behind that, has the same ctime.
BOOST_FIXTURE_TEST_CASE(file_systems_may_keep_hundredths_of_a_second, clock_fixture)
{
    constexpr std::uint64_t grain = 10'000'000;
    for (std::uint64_t late = 0; late < grain; late += 1'000'000) {
        for (const std::uint64_t small_tick : {std::uint64_t(1'000'000), tick}) {
            auto source = model_clock::source();
            source.tick = small_tick;
            change_numbers numbers(source);
            model_clock::real = (model_clock::real / grain + 2) * grain;
            model_file f(1);
            f.change();
            f.ctime = f.ctime / grain * grain;
            // Told as at rest it would have the largest number of this ctime.
            pass(late);
            const std::uint64_t first = number_now(numbers, f);
            pass(grain - 1 - late);
            f.change();
            f.ctime = f.ctime / grain * grain;
            numbers.changed(f.who);
            BOOST_TEST(number_now(numbers, f) > first);
        }
    }
}

BOOST_FIXTURE_TEST_CASE(clocks_of_other_hosts_may_be_late, clock_fixture)
{
    change_numbers numbers(model_clock::source());
    model_file f(1);
    f.who.local = false;
    std::uint64_t last = 0;
    for (int i = 0; i < 10; ++i) {
        f.change();
        f.ctime -= 20 * second;
        numbers.changed(f.who);
        BOOST_TEST(number_now(numbers, f) > last);
        last = number_now(numbers, f);
        pass(1000);
    }
}

BOOST_FIXTURE_TEST_CASE(file_systems_may_keep_whole_seconds, clock_fixture)
{
    change_numbers numbers(model_clock::source());
    model_file f(1);
    std::uint64_t last = 0;
    for (int i = 0; i < 10; ++i) {
        f.change();
        f.ctime = f.ctime / (2 * second) * (2 * second);
        numbers.changed(f.who);
        BOOST_TEST(number_now(numbers, f) > last);
        last = number_now(numbers, f);
        pass(100 * tick);
    }
}

BOOST_AUTO_TEST_CASE(whatever_happens_at_once)
{
    std::vector<std::uint64_t> seeds;
    for (std::uint64_t s = 0; s < 150; ++s)
        seeds.push_back(s);
    for (int i = 0; i < 50; ++i)
        seeds.push_back(std::random_device()());
    for (const std::uint64_t seed : seeds) {
        for (const bool whole_seconds : {false, true}) {
            const clock_fixture begin;
            const std::string broken = walk(seed, whole_seconds).run(4000);
            BOOST_TEST_REQUIRE(broken == "", broken << " with seed " << seed
                                                    << (whole_seconds ? ", in whole seconds" : ""));
        }
    }
}

BOOST_AUTO_TEST_CASE(threads_that_write_one_file)
{
    const ramfs directory;
    const posixfs::unique_fd fd(::open((directory.path() / "f").c_str(), O_RDWR | O_CREAT, 0600));
    BOOST_REQUIRE(fd);
    struct stat st{};
    BOOST_REQUIRE(::fstat(fd.get(), &st) == 0);
    const numbered_file file{st.st_dev, st.st_ino, true};
    change_numbers numbers;
    std::array<int, 3> wrong{};
    const auto write = [&](int& failed) {
        std::uint64_t last = 0;
        for (int i = 0; i < 3000; ++i) {
            looked now{};
            failed += ::pwrite(fd.get(), "data", 4, 0) == 4 ? 0 : 1;
            numbers.changed(file);
            failed += numbers.look(file, fd.get(), now) == 0 && now.number > last ? 0 : 1;
            last = now.number.value_or(0);
        }
    };
    const auto read = [&](int& failed) {
        std::uint64_t last = 0;
        for (int i = 0; i < 3000; ++i) {
            looked now{};
            failed += numbers.look(file, fd.get(), now) == 0 && now.number >= last ? 0 : 1;
            last = now.number.value_or(0);
        }
    };
    std::thread one([&] { write(wrong[0]); });
    std::thread other([&] { write(wrong[1]); });
    read(wrong[2]);
    one.join();
    other.join();
    for (const int count : wrong)
        BOOST_TEST(count == 0);
}

namespace {

/// Somebody whom shards that keep their credentials serve on the pool.
struct on_the_pool {
    on_the_pool() { keeps_identity = true; }
    ~on_the_pool() { keeps_identity = false; }
};
struct pool_states : on_the_pool, numbered_states {
    pool_states() { me.who = credential(1000, 1000); }
};

} // namespace

BOOST_FIXTURE_TEST_CASE(each_change_of_a_file_that_the_pool_makes, pool_states) { change_a_file(); }
BOOST_FIXTURE_TEST_CASE(each_change_of_a_directory_that_the_pool_makes, pool_states) { change_a_directory(); }

BOOST_FIXTURE_TEST_CASE(exports_of_one_tree_tell_one_number, fixture)
{
    const handle f = make_file("f", "x");
    const auto other = another_backend(pool);
    const handle same = must(other->lookup(me, other->root(), "f")).found.handle;
    std::uint64_t last = 0;
    for (int i = 0; i < 20; ++i) {
        put(me, f, 0, "data");
        const attributes here = stat(f);
        BOOST_TEST_REQUIRE(here.change.has_value());
        BOOST_TEST(*here.change > last);
        last = *here.change;
        BOOST_TEST((must(other->getattr(me, same)).change == here.change));
    }
}

BOOST_FIXTURE_TEST_CASE(numbers_go_on_behind_those_of_the_back_end_before, fixture)
{
    make_file("f", "x");
    std::uint64_t last = 0;
    for (int i = 0; i < 20; ++i) {
        const handle f = find(fs->root(), "f"); // by its name, as handles of ramfs end with their back end
        put(me, f, 0, "data");
        const std::uint64_t number = stat(f).change.value_or(0);
        BOOST_TEST(number > last);
        fs.reset();
        fs = another_backend(pool);
        last = stat(find(fs->root(), "f")).change.value_or(0);
        BOOST_TEST(last >= number);
    }
}

// It sees what they do, but for what falls into the tick of the last change that it has told.
BOOST_FIXTURE_TEST_CASE(local_writers_show, fixture)
{
    const handle f = make_file("f", "x");
    const posixfs::unique_fd fd(::open((exported->path() / "f").c_str(), O_WRONLY));
    BOOST_REQUIRE(fd);
    for (int i = 0; i < 5; ++i) {
        put(me, f, 0, "ours");
        const attributes before = stat(f);
        attributes now = before;
        do {
            BOOST_REQUIRE(::pwrite(fd.get(), "theirs", 6, 0) == 6);
            now = stat(f);
        } while (now.ctime == before.ctime);
        BOOST_TEST(*now.change > *before.change);
        put(me, f, 0, "ours");
        BOOST_TEST(*stat(f).change > *now.change);
    }
}
