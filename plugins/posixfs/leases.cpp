// SPDX-License-Identifier: Apache-2.0
// Leases of files: what is open for writing here is closed first, on all shards.
#include "backend.hpp"
#include "lease_watch.hpp"

#include <fcntl.h>

namespace verbena::posixfs {

/// Asks the other shards for what they have open of a file for writing, and that nobody uses. `co_await` it on `home`.
class [[nodiscard("co_await it: nothing runs otherwise")]] backend::writers_elsewhere {
public:
    writers_elsewhere(backend& b, shard& home, const storage::handle& file) : home_(*home.home), file_(file)
    {
        for (auto& slot : b.shards_) {
            shard* const other = slot.load(std::memory_order_acquire);
            if (other != nullptr && other != &home)
                questions_.push_back(std::make_unique<question>(*this, *other));
        }
    }
    writers_elsewhere(const writers_elsewhere&) = delete;

    bool await_ready() const noexcept { return questions_.empty(); }
    template<class Promise>
    void await_suspend(std::coroutine_handle<Promise> h)
    {
        handle_ = h;
        mark_.set(h, "what other shards have open for writing");
        away_ = questions_.size();
        for (auto& q : questions_)
            q->at.home->post_remote(*q);
    }
    std::vector<writers_given_up> await_resume()
    {
        std::vector<writers_given_up> all;
        for (auto& q : questions_)
            all.push_back(std::move(q->answer));
        return all;
    }

private:
    struct question final : remote_message {
        question(writers_elsewhere& o, shard& s) noexcept : of(o), at(s) {}
        void deliver() noexcept override
        {
            if (is_asked)
                return of.came_back();
            is_asked = true;
            at.files.give_up_writers(of.file_, answer);
            of.home_.post_remote(*this);
        }
        writers_elsewhere& of;
        shard& at;
        bool is_asked = false;
        writers_given_up answer;
    };
    void came_back() noexcept
    {
        if (--away_ != 0)
            return;
        mark_.clear();
        home_.post(handle_);
    }

    reactor& home_;
    const storage::handle& file_;
    std::vector<std::unique_ptr<question>> questions_;
    std::size_t away_ = 0;
    std::coroutine_handle<> handle_;
    wait_mark mark_;
};

task<result<std::unique_ptr<storage::file_lease>>> backend::lease(const storage::handle& file,
                                                                  storage::lease_wanted wanted)
{
    using taken = std::unique_ptr<storage::file_lease>;
    if (!leases_)
        co_return error::from_errno(EOPNOTSUPP, "leases are switched off");
    shard& s = at(co_await this_reactor());
    auto opened_file = co_await open_file(s, file);
    if (!opened_file)
        co_return opened_file.error();
    file_ref f = std::move(*opened_file);
    if (!f->is_regular())
        co_return error::from_errno(EINVAL, "a lease of what is no regular file");
    if (!f->mount->local)
        co_return error::from_errno(EOPNOTSUPP, "other hosts may change the file");
    const std::size_t most =
        options_.most_leases != 0 ? options_.most_leases : descriptor_cache::budget() / 2;
    if (lease_watch::held() >= most)
        co_return error::from_errno(EMFILE, "as many leases as there may be");
    s.files.keep_within_budget();
    std::vector<writers_given_up> gone;
    for (bool again = false;; again = true) {
        auto job = [this, path = f->path.get(), home = s.home, &wanted, &gone]() -> result<taken> {
            gone.clear();
            unique_fd fd(
                ::openat(self_.get(), fd_name(path).text(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
            if (!fd)
                return errno_error("open for a lease");
            return leases_->take(std::move(fd), *home, wanted, pool_);
        };
        auto done = co_await run_with_room(s, job, false, when_full::wait);
        if (again || done || done.error().errno_value() != EAGAIN)
            co_return std::move(done);
        // Somebody has the file open for writing. It may be we.
        writers_elsewhere asking(*this, s, f->handle);
        gone = co_await asking;
        s.files.give_up_writers(f, gone.emplace_back());
    }
}

} // namespace verbena::posixfs
