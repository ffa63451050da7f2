// SPDX-License-Identifier: Apache-2.0
// The last lines of the log, in memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

namespace verbena::detail {

/// The last `size` bytes that were appended. Of the thread that writes the log; whoever asks for them waits for a copy at most. Any thread.
class log_tail {
public:
    static constexpr std::size_t usual_size = std::size_t(256) << 10;

    explicit constexpr log_tail(std::size_t size = usual_size) noexcept : size_(size) {}
    /// Before the first append(), which keeps nothing else. Throws std::bad_alloc.
    void prepare()
    {
        const std::lock_guard lock(mutex_);
        if (!bytes_)
            bytes_ = std::make_unique<char[]>(size_);
    }
    void append(std::string_view text) noexcept
    {
        const std::lock_guard lock(mutex_);
        if (!bytes_)
            return;
        text = text.substr(text.size() - std::min(text.size(), size_));
        const std::size_t first = std::min(text.size(), size_ - end_);
        std::memcpy(bytes_.get() + end_, text.data(), first);
        std::memcpy(bytes_.get(), text.data() + first, text.size() - first);
        end_ = (end_ + text.size()) % size_;
        used_ = std::min(used_ + text.size(), size_);
    }
    /// Whole lines: what is left of one whose beginning is gone is left out. Throws std::bad_alloc.
    std::string lines() const
    {
        std::string all;
        all.reserve(size_);
        {
            const std::lock_guard lock(mutex_);
            const std::size_t begin = (end_ + size_ - used_) % size_;
            const std::size_t first = std::min(used_, size_ - begin);
            all.append(bytes_.get() + begin, first).append(bytes_.get(), used_ - first);
            if (used_ < size_)
                return all;
        }
        return all.substr(std::min(all.find('\n'), all.size() - 1) + 1);
    }
    /// Around fork(), by whoever owns it.
    void before_fork() noexcept { mutex_.lock(); }
    void after_fork() noexcept { mutex_.unlock(); }

private:
    const std::size_t size_;
    mutable std::mutex mutex_;
    std::unique_ptr<char[]> bytes_;
    std::size_t end_ = 0;
    std::size_t used_ = 0;
};

} // namespace verbena::detail
