// SPDX-License-Identifier: Apache-2.0
#include "checksum.hpp"

#include <array>
#include <openssl/evp.h>
#include <stdexcept>

namespace verbena::cli {

struct sha256::state {
    EVP_MD_CTX* context = EVP_MD_CTX_new();
    ~state() { EVP_MD_CTX_free(context); }
};

sha256::sha256() : state_(std::make_unique<state>())
{
    if (state_->context == nullptr || EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr) != 1)
        throw std::runtime_error("OpenSSL has no SHA-256");
}

sha256::~sha256() = default;

void sha256::update(std::span<const std::byte> bytes)
{
    EVP_DigestUpdate(state_->context, bytes.data(), bytes.size());
}

std::string sha256::finish()
{
    std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
    unsigned size = 0;
    EVP_DigestFinal_ex(state_->context, digest.data(), &size);
    constexpr std::string_view digits = "0123456789abcdef";
    std::string text;
    for (unsigned i = 0; i < size; ++i) {
        text += digits[digest[i] >> 4];
        text += digits[digest[i] & 15];
    }
    return text;
}

} // namespace verbena::cli
