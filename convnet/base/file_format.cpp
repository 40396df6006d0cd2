#include "convnet/base/file_format.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "convnet/base/checksum.h"
#include "convnet/base/endian.h"
#include "convnet/base/file.h"

namespace convnet {
namespace {

using namespace std::string_view_literals;

/// A format that is recognised by bytes at one place.
struct Signature {
  std::size_t offset;
  std::string_view bytes;
  FileFormat format;
  bool is_text = false;
};

constexpr const char* kToPicture = "convert it to JPEG or PNG";
constexpr const char* kToNpy = "read it in Python, and write its arrays with numpy.save";
constexpr const char* kToInitFrom = "a new run takes its weights with --init-from";
constexpr const char* kToCsv = "save it as CSV in UTF-8";
constexpr const char* kDownload = "perhaps a download that failed";

using enum FileKind;
constexpr std::array kSignatures = {
    Signature{0, "\x1f\x8b"sv, {compressed, "compressed by gzip", "unpack it with gunzip"}},
    Signature{0, "BZh"sv, {compressed, "compressed by bzip2", "unpack it with bunzip2"}},
    Signature{0,
              "\xfd"
              "7zXZ\0"sv,
              {compressed, "compressed by xz", "unpack it with unxz"}},
    Signature{0, "\x28\xb5\x2f\xfd"sv, {compressed, "compressed by Zstandard", "unpack it with unzstd"}},
    Signature{0, "\x04\x22\x4d\x18"sv, {compressed, "compressed by lz4", "unpack it with unlz4"}},
    Signature{0, "7z\xbc\xaf\x27\x1c"sv, {archive, "a 7z archive", "unpack it with 7z x"}},
    Signature{0, "Rar!\x1a\x07"sv, {archive, "a RAR archive", "unpack it with unrar x"}},
    Signature{257, "ustar"sv, {archive, "a tar", ""}},
    Signature{0, "\xff\xd8\xff"sv, {picture, "a JPEG", ""}},
    Signature{0, "\x89PNG\r\n\x1a\n"sv, {picture, "a PNG", ""}},
    Signature{8, "WEBPVP8"sv, {picture, "a WebP picture", ""}},
    Signature{0, "GIF8"sv, {other_picture, "a GIF picture", kToPicture}},
    Signature{0, "II*\0"sv, {other_picture, "a TIFF picture", kToPicture}},
    Signature{0, "MM\0*"sv, {other_picture, "a TIFF picture", kToPicture}},
    Signature{0, "II+\0"sv, {other_picture, "a TIFF picture", kToPicture}},
    Signature{0, "MM\0+"sv, {other_picture, "a TIFF picture", kToPicture}},
    Signature{4, "ftypavi"sv, {other_picture, "an AVIF picture", kToPicture}},
    Signature{4, "ftyphe"sv, {other_picture, "a HEIC picture", kToPicture}},
    Signature{4, "ftypmif1"sv, {other_picture, "a HEIC picture", kToPicture}},
    Signature{4, "ftypmsf1"sv, {other_picture, "a HEIC picture", kToPicture}},
    Signature{4, "ftypqt"sv, {document, "a video", ""}},
    Signature{4, "ftypmp4"sv, {document, "a video", ""}},
    Signature{4, "ftypisom"sv, {document, "a video", ""}},
    Signature{0, "\xff\x0a"sv, {other_picture, "a JPEG XL picture", kToPicture}},
    Signature{0, "\0\0\0\x0cJXL \r\n\x87\n"sv, {other_picture, "a JPEG XL picture", kToPicture}},
    Signature{0, "\0\0\0\x0cjP  \r\n\x87\n"sv, {other_picture, "a JPEG 2000 picture", kToPicture}},
    Signature{0, "8BPS"sv, {other_picture, "a Photoshop picture", kToPicture}},
    Signature{0, "\0\0\1\0"sv, {other_picture, "an icon", kToPicture}},
    Signature{128, "DICM"sv, {other_picture, "a DICOM picture", kToPicture}},
    Signature{0, "\x93NUMPY"sv, {arrays, "a NumPy array (.npy)", ""}},
    Signature{0, "\x89HDF\r\n\x1a\n"sv, {arrays, "an HDF5 file", kToNpy}},
    Signature{16, "\xde\xc0\xef\xbe"sv, {arrays, "an LMDB database", "write its images as files"}},
    Signature{0, "PAR1"sv, {arrays, "a Parquet file", kToNpy}},
    Signature{0, "ARROW1"sv, {arrays, "an Arrow file", kToNpy}},
    Signature{0, "MATLAB 5.0 MAT-file"sv, {arrays, "a MATLAB file", kToNpy}},
    Signature{0, "SQLite format 3\0"sv, {arrays, "an SQLite database", kToNpy}},
    Signature{0,
              "\x80\x02\x8a\x0al\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"sv,
              {model, "an old file of torch.save (.pth)", kToInitFrom}},
    Signature{4, "TFL3"sv, {model, "a TensorFlow Lite model", ""}},
    Signature{0, "GGUF"sv, {model, "a GGUF model", ""}},
    Signature{0, "%PDF-"sv, {document, "a PDF", ""}},
    Signature{0,
              "\x7f"
              "ELF"sv,
              {document, "a program", ""}},
    Signature{0, "\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"sv, {document, "an Office document", kToCsv}},
    Signature{0,
              "version https://git-lfs"sv,
              {document, "a pointer of Git LFS, not the file itself", "fetch it with git lfs pull"},
              true},
};

constexpr FileFormat kBmp{picture, "a BMP", ""};
constexpr FileFormat kZip{archive, "a zip archive", "unpack it with unzip"};
constexpr FileFormat kTorch{model, "a zip archive, as torch.save (.pth) writes", kToInitFrom};
constexpr FileFormat kKeras{model, "a Keras model", ""};
constexpr FileFormat kNpz{arrays, "a zip archive of NumPy arrays (.npz)", "save each array with numpy.save"};
constexpr FileFormat kOffice{document, "an Office document", kToCsv};
constexpr FileFormat kPickle{
    arrays, "a pickle",
    "if it is a batch of CIFAR or of cuda-convnet2, name its folder; else read it in "
    "Python, and write its arrays with numpy.save"};
constexpr FileFormat kTfRecord{arrays, "a TFRecord file",
                               "write its images as files in a folder for each class, or in tars"};
constexpr FileFormat kOnnx{importable, "an ONNX model", "convnet import makes a net and a checkpoint of it"};
constexpr FileFormat kCaffe{model, "a Caffe model", ""};
constexpr FileFormat kSafetensors{model, "a safetensors file", kToInitFrom};
constexpr FileFormat kWebPage{web_page, "a web page", kDownload};
constexpr FileFormat kXml{document, "an XML file", ""};
constexpr FileFormat kNetpbm{other_picture, "a PBM, PGM or PPM picture", kToPicture};

/// Returns which zip this is, by the name of its first file.
const FileFormat* zip_format(std::string_view first) {
  const std::string_view name = first.size() > 30 ? first.substr(30) : std::string_view();
  const auto has = [&](std::string_view part) {
    return name.substr(0, 100).find(part) != std::string_view::npos;
  };
  if (has("/data.pkl") || has("/byteorder") || has("/version")) return &kTorch;
  if (name.starts_with("metadata.json") || name.starts_with("config.json")) return &kKeras;
  if (has(".npy")) return &kNpz;
  if (has("[Content_Types].xml") || name.starts_with("mimetypeapplication/vnd.oasis")) return &kOffice;
  return &kZip;
}

/// Returns whether these are the first fields of an ONNX model: the version of the format, then the name of
/// the program that wrote it or the graph.
bool is_onnx(std::string_view first) {
  return first.size() > 3 && first[0] == '\x08' && first[1] > 0 && first[1] < 32 &&
         (first[2] == '\x12' || first[2] == '\x3a');
}

/// Returns whether this is a net of Caffe with weights: its name, then its first layer (field 100).
bool is_caffemodel(std::string_view first) {
  if (first.size() < 4 || first[0] != '\x0a') return false;
  const auto length = static_cast<std::size_t>(static_cast<unsigned char>(first[1]));
  return length < 128 && first.size() > length + 4 && first.substr(2 + length).starts_with("\xa2\x06");
}

char lower_letter(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

const FileFormat* find_text_format(std::string_view first) {
  if (first.starts_with("\xEF\xBB\xBF")) first.remove_prefix(3);
  const std::size_t begin = std::min(first.find_first_not_of(" \t\r\n"), first.size());
  std::string start(first.substr(begin, 32));
  std::transform(start.begin(), start.end(), start.begin(), lower_letter);
  if (start.starts_with("<!doctype html") || start.starts_with("<html")) return &kWebPage;
  if (start.starts_with("<?xml") || start.starts_with("<svg")) return &kXml;
  return nullptr;
}

const FileFormat* find_signature(std::string_view first, bool texts) {
  for (const Signature& s : kSignatures)
    if (s.is_text == texts && first.size() > s.offset && first.substr(s.offset).starts_with(s.bytes))
      return &s.format;
  return nullptr;
}

}  // namespace

const FileFormat* find_binary_format(std::string_view first) {
  first = first.substr(0, kFormatBytes);
  if (first.starts_with("PK\3\4")) return zip_format(first);
  if (const FileFormat* found = find_signature(first, false)) return found;
  if (first.starts_with("BM") && first.size() >= 26 && little_endian(first, 6, 4) == 0) return &kBmp;
  if (first.size() > 3 && first[0] == 'P' && first[1] >= '1' && first[1] <= '6' &&
      (first[2] == '\n' || first[2] == ' '))
    return &kNetpbm;
  if (is_onnx(first)) return &kOnnx;
  if (is_caffemodel(first)) return &kCaffe;
  if (first.size() >= 12 && little_endian(first, 8, 4) == masked_crc32c(first.substr(0, 8)))
    return &kTfRecord;
  if (first.size() > 8 && first[8] == '{' && little_endian(first, 0, 8) < (std::uint64_t{1} << 32))
    return &kSafetensors;
  if (first.size() > 2 && ((first[0] == '\x80' && first[1] >= 2 && first[1] <= 5) ||
                           first.starts_with("(dp") || first.starts_with("(lp")))
    return &kPickle;
  return nullptr;
}

std::string format_bytes(const InputFile& file) {
  return file.read(0, std::min<std::uint64_t>(file.size(), kFormatBytes));
}

const FileFormat* find_format(std::string_view first) {
  first = first.substr(0, kFormatBytes);
  if (const FileFormat* found = find_binary_format(first)) return found;
  if (const FileFormat* found = find_signature(first, true)) return found;
  return find_text_format(first);
}

bool is_pickle(std::string_view first) { return find_format(first) == &kPickle; }

std::string other_format_text(std::string_view first, const std::string& wanted,
                              const std::string& otherwise) {
  const FileFormat* format = find_format(first);
  if (format == nullptr || wanted == format->name) return otherwise;
  const std::string cure = format->cure;
  return std::string("is ") + format->name + ", not " + wanted + (cure.empty() ? "" : "; " + cure);
}

}  // namespace convnet
