// SPDX-License-Identifier: Apache-2.0
// A back end whose files local processes may want, as far as leases go.
#pragma once

#include <verbena/core/reactor/reactor.hpp>
#include <verbena/core/task/event.hpp>
#include <verbena/core/task/sleep.hpp>
#include <verbena/protocols/storage/forwarding_backend.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace verbena::test {

class leasing_files final : public storage::forwarding_backend {
public:
    explicit leasing_files(storage::file_backend& below)
        : forwarding_backend(below, storage::filter_bytes::are_those_below), info_(below.info())
    {
        info_.leases = true;
    }
    const storage::filesystem_info& info() const noexcept override { return info_; }
    task<result<std::unique_ptr<storage::file_lease>>> lease(const storage::handle& file,
                                                             storage::lease_wanted wanted) override
    {
        ++asked;
        // In force at once, as the kernel's is while its holder has not heard of it yet.
        auto made = std::make_unique<one>(*this, file, std::move(wanted));
        if (refuses_with != 0)
            co_return error::from_errno(refuses_with, "a lease");
        if (takes && takes() != duration::zero())
            co_await sleep_for(takes());
        if (holds)
            (void)co_await go.wait();
        std::unique_ptr<storage::file_lease> out = std::move(made);
        co_return out;
    }
    task<result<storage::write_result>> write(const storage::request& r, const storage::handle& file,
                                              std::uint64_t offset,
                                              std::span<const std::span<const std::byte>> pieces,
                                              storage::stability how) override
    {
        note_change(file);
        return below().write(r, file, offset, pieces, how);
    }
    task<result<storage::change>> setattr(const storage::request& r, const storage::handle& file,
                                          const storage::set_attributes& set,
                                          std::optional<storage::file_time> guard) override
    {
        if (set.size)
            note_change(file);
        return below().setattr(r, file, set, guard);
    }
    /// A process of this host opens the file of the lease taken last for writing; false if there is none.
    bool local_writer()
    {
        if (leases_.empty())
            return false;
        const storage::handle file = leases_.back()->file;
        local_writer_of(file);
        return true;
    }
    /// The same of that file: those that have a lease of it are told, on the shards where they took it. The process
    /// waits until is_leased() is false.
    void local_writer_of(const storage::handle& file)
    {
        std::vector<storage::lease_wanted> told;
        for (one* l : leases_) {
            if (l->file != file)
                continue;
            if (l->home == nullptr || l->home->is_here())
                told.push_back(l->wanted);
            else
                l->home->post_remote(*new want(*this, l->number));
        }
        for (const auto& tell : told)
            tell();
    }
    bool is_leased(const storage::handle& file) const
    {
        return std::ranges::any_of(leases_, [&](const one* l) { return l->file == file; });
    }

    int asked = 0;
    int out = 0;     ///< leases
    int changes = 0; ///< of data
    int broken = 0;  ///< of these while a lease of the file was out
    std::function<duration()> takes;
    bool holds = false;
    event go;
    int refuses_with = 0;

private:
    struct one final : storage::file_lease {
        one(leasing_files& o, const storage::handle& f, storage::lease_wanted w)
            : of(o), file(f), wanted(std::move(w))
        {
            ++of.out;
            of.leases_.push_back(this);
        }
        ~one() override
        {
            --of.out;
            std::erase(of.leases_, this);
        }
        leasing_files& of;
        const storage::handle file;
        const storage::lease_wanted wanted;
        reactor* const home = reactor::current();
        const std::uint64_t number = ++of.last_;
    };
    // To the holder of a lease, unless it has released it meanwhile. All shards are of one thread.
    class want final : public remote_message {
    public:
        want(leasing_files& of, std::uint64_t number) noexcept : of_(of), number_(number) {}
        void deliver() noexcept override
        {
            const auto at = std::ranges::find(of_.leases_, number_, [](const one* l) { return l->number; });
            if (at != of_.leases_.end()) {
                const storage::lease_wanted tell = (*at)->wanted;
                tell();
            }
            delete this;
        }

    private:
        leasing_files& of_;
        const std::uint64_t number_;
    };
    void note_change(const storage::handle& file)
    {
        ++changes;
        for (const one* l : leases_)
            broken += l->file == file;
    }
    storage::filesystem_info info_;
    std::vector<one*> leases_;
    std::uint64_t last_ = 0;
};

} // namespace verbena::test
