// SPDX-License-Identifier: Apache-2.0
// Reads and writes that are under way on one shard, by file: what an open that denies them has to wait for.
//
// Whoever reads or writes asks first whether somebody's open denies it, and may then take its time. An open that is granted meanwhile
// must not be answered before that is over: its owner relies on nobody else reading or writing.
//
// How the two are ordered. Who reads or writes stands in its shard's list before it asks. Who opens has its bits in force in the state
// layer first (state_table::begin_open()); then a message goes to each shard, which answers when what stood in its list at that moment
// is over. A shard delivers messages between the steps of its tasks, never inside of one. So whoever asked before the bits were in force
// is in the list, or over, when the message comes, and whoever asks later is refused. Neither a fence nor a read-modify-write stands in the path of I/O,
// and nothing is allocated.
#pragma once

#include <verbena/core/clock.hpp>
#include <verbena/core/intrusive_list.hpp>
#include <verbena/core/task.hpp>
#include <verbena/protocols/files/types.hpp>
#include <verbena/protocols/storage/types.hpp>

#include <cstdint>
#include <utility>

#pragma GCC visibility push(default)

namespace verbena::nfs {

/// Of one shard, and used there only. Outlives its holds.
class io_list {
public:
    /// One read or write for as long as it lives.
    class hold : list_hook {
    public:
        hold() = default;
        hold(const hold&) = delete;
        ~hold() { end(); }
        /// Of a file of an export. What it held before is over.
        void begin(io_list& list, std::uint32_t export_id, const storage::handle& file,
                   files::share access) noexcept
        {
            end();
            number_ = list.next_++;
            export_id_ = export_id;
            file_ = file;
            access_ = access;
            list.holds_.push_back(*this);
        }
        /// Of a file that is known by a name alone: whoever waits for any file waits for it.
        void begin_of_any(io_list& list, files::share access) noexcept
        {
            begin(list, any_export, {}, access);
        }
        void end() noexcept
        {
            unlink();
            if (awaited_by_ != nullptr)
                std::exchange(awaited_by_, nullptr)->ended(*this);
        }

    private:
        friend class io_list;
        friend class intrusive_list<hold>;
        static constexpr std::uint32_t any_export = ~std::uint32_t(0); // no export has this number
        std::uint64_t number_ = 0;
        std::uint32_t export_id_ = 0;
        files::share access_ = files::share::none;
        io_list* awaited_by_ = nullptr; // unless nobody waits for its end
        storage::handle file_;
    };

    /// Whether all that is under way now on the file, by the state layer's name for it, and has part of `denied`, ends within `patience`.
    /// Completes when: it has ended, or has not in time. On cancel: false. Errors: none. Lifetime: the list outlives it. Shard: the
    /// list's.
    task<bool> ends(storage::handle file, files::share denied, duration patience);

private:
    struct ending;
    void ended(const hold& h) noexcept;
    intrusive_list<hold> holds_;        // in the order of beginning
    intrusive_list<list_hook> endings_; // each an `ending`
    std::uint64_t next_ = 1;
};

} // namespace verbena::nfs

#pragma GCC visibility pop
