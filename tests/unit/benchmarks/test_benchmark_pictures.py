"""Which pictures descriptors are made of."""

from benchmarks.pictures import pictures


def test_of_a_picture_in_several_sizes_one_is_taken(tmp_path):
    names = [
        "sea/images/1080x1920.png",
        "sea/images/5120x2880.png",
        "hill/images/720x1440.jpg",
        "Elephants_3840x2160.jpg",
        "Elephants_5640x3172.jpg",
        "Elephants.jpg",
        "2004.jpg",
        "2005.JPG",
        "notes.txt",
    ]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()

    assert sorted(str(path.relative_to(tmp_path)) for path in pictures(tmp_path)) == [
        "2004.jpg",
        "2005.JPG",
        "Elephants.jpg",
        "hill/images/720x1440.jpg",
        "sea/images/1080x1920.png",
    ]
